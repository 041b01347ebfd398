"""NNabla's module of data sources, which has those with file caches as well."""

from ...data.cache_data_source import DataSourceWithFileCache, DataSourceWithFileCacheError
from ...data.data_source import (
    DataError,
    DataSource,
    DataSourceWithMemoryCache,
    InterleavedDataSource,
    Orders,
    SlicedDataSource,
)

__all__ = [
    "DataError",
    "DataSource",
    "DataSourceWithFileCache",
    "DataSourceWithFileCacheError",
    "DataSourceWithMemoryCache",
    "InterleavedDataSource",
    "Orders",
    "SlicedDataSource",
]
