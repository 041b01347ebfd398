//! Gradients as graphs: the rules of the operations, written on symbols, create functions that can be differentiated
//! again. The same rules serve `grad` of any order and every operation without a backward kernel.

use smallvec::SmallVec;

use crate::array::{DType, Shape};
use crate::graph::arena::{self, Arena, Ix, NONE};
use crate::graph::autodiff::hooks::RunHooks;
use crate::graph::autodiff::options::DifferentiateOptions;
use crate::graph::autodiff::route::{Edge, GradientRoute};
use crate::graph::construct::connect::connect;
use crate::graph::handles::function::Function;
use crate::graph::handles::user::User;
use crate::graph::handles::variable::Variable;
use crate::graph::lifetime::forward::Clearing;
use crate::graph::lifetime::restore;
use crate::graph::settings::context;
use crate::graph::settings::modes::{self, Scope, is_nnabla};
use crate::graph::step::{anomaly, setup};
use crate::ops::arrangement::array::Identity;
use crate::ops::contract::symbol::{Builder, build};
use crate::ops::{Op, Reads, Sym, Symbols};
use crate::{Error, Result};

/// Builds on the graph of variables.
#[derive(Default)]
struct GraphBuilder(Vec<Variable>);

impl GraphBuilder {
    /// Adds a variable and returns its symbol.
    fn add(&mut self, v: Variable) -> Sym {
        self.0.push(v);
        Sym::Node(self.0.len() as u32 - 1)
    }

    /// Applies the rule of a function to the gradients of its outputs, and adds the resulting gradients of its inputs
    /// to `total`.
    ///
    /// In a context of 16 bits the rule is built in `f32`, and only its results are rounded.
    fn apply_rule(
        &mut self,
        node: &RuleNode,
        outputs: &[u32],
        inputs: &[u32],
        total: &mut [Option<Sym>],
    ) -> Result<()> {
        let wanted: Vec<bool> = inputs.iter().map(|slot| *slot != NONE).collect();
        let x: Vec<Sym> = node.inputs.iter().map(|v| self.add(v.clone())).collect();
        let y: Vec<Sym> = node.outputs.iter().map(|v| self.add(v.clone())).collect();
        let shapes: Vec<Shape> = node.outputs.iter().map(Variable::shape).collect();
        let gy: Vec<Sym> = build(self, || {
            let gradient = |(slot, shape): (&u32, &Shape)| {
                total[*slot as usize].unwrap_or(Sym::Const(0.0)).broadcast(shape)
            };
            outputs.iter().zip(&shapes).map(gradient).collect()
        })?;
        let wide = node.wide_context()?;
        let given = self.0.len() as u32;
        let found = match node.op.user().and_then(|user| user.downcast_ref::<User>()) {
            Some(user) => self.of_user(user, node, &gy, &shapes, &wanted)?,
            None => {
                let _context = wide.map(Scope::context);
                build(self, || node.op.gradient(Symbols::new(&x, &y, &gy, &wanted)))??
            }
        };
        build(self, || {
            for ((slot, v), g) in inputs.iter().zip(&node.inputs).zip(found) {
                let (Some(g), true) = (g, *slot != NONE) else { continue };
                let stays_wide = wide.filter(|_| is_leaf_of_f32(v));
                let _context = stays_wide.map(Scope::context);
                let is_new = matches!(g, Sym::Node(n) if n >= given);
                let rounds = is_new && wide.is_some() && stays_wide.is_none();
                add_up(&mut total[*slot as usize], if rounds { Sym::unary(Identity {}, g) } else { g });
            }
        })
    }

    /// Applies the rule of a user operation: from the gradients `gy` of the outputs to the gradients of the inputs.
    fn of_user(
        &mut self,
        user: &User,
        node: &RuleNode,
        gy: &[Sym],
        shapes: &[Shape],
        wanted: &[bool],
    ) -> Result<Vec<Option<Sym>>> {
        let gy = gy.iter().zip(shapes).map(|(g, shape)| as_variable(Some(*g), shape, self));
        let gy: Vec<Variable> = gy.filter_map(Result::transpose).collect::<Result<_>>()?;
        let x = &node.inputs;
        let found = user.0.gradient(x, &node.outputs, &gy, wanted)?;
        let name = node.op.name();
        if found.len() != x.len() {
            let (n, got) = (x.len(), found.len());
            return Err(Error::Value(format!("grad of {name}: expected {n} gradients, got {got}")));
        }
        for (i, (g, x)) in found.iter().zip(x).enumerate() {
            if let Some(g) = g
                && g.shape() != x.shape()
            {
                let expected = format!("a gradient of shape {} for input {i}", x.shape());
                return Err(Error::shape(format!("grad of {name}"), expected, [&g.shape()]));
            }
        }
        Ok(found.into_iter().map(|g| g.map(|g| self.add(g))).collect())
    }
}

impl Builder for GraphBuilder {
    fn apply(&mut self, op: Op, x: &[u32]) -> Result<SmallVec<[u32; 1]>> {
        let x: SmallVec<[&Variable; 4]> = x.iter().map(|x| &self.0[*x as usize]).collect();
        let y = connect(op, &x, &[])?;
        drop(x);
        let first = self.0.len() as u32;
        self.0.extend(y);
        Ok((first..self.0.len() as u32).collect())
    }
    fn shape(&self, v: u32) -> Shape {
        self.0[v as usize].shape()
    }
}

/// A function on the route, with its operation, inputs and outputs.
pub(crate) struct RuleNode {
    /// The operation, whose rule is applied.
    op: Op,
    /// The number of the context in which it runs.
    context: u16,
    /// The given inputs.
    inputs: Vec<Variable>,
    /// The outputs.
    outputs: Vec<Variable>,
}

impl RuleNode {
    /// The context in which its rule is built, if it is another one than its own. See [`context::Precision::of_rule`].
    ///
    /// If an operation only moves elements, its rule is exact in its own context.
    fn wide_context(&self) -> Result<Option<u16>> {
        let own = context::precision(self.context);
        if own.of_rule(&self.op) == own || self.op.user().is_some() {
            return Ok(None);
        }
        let facts = self.op.facts();
        let moves = facts.makes_reals.is_none() && (0..self.inputs.len()).any(|i| facts.moves(i));
        let is_exact = moves && !self.inputs.iter().any(is_leaf_of_f32);
        (!is_exact).then(|| context::widened(self.context)).transpose()
    }

    /// The values that its rule reads for the requested gradients of inputs.
    fn reads(&self, slots: &[u32]) -> Reads {
        let wanted = (0..slots.len()).filter(|i| slots[*i] != NONE);
        wanted.fold(Reads::NOTHING, |all, i| all.or(self.op.facts().symbol_reads(i)))
    }
}

/// The functions of a route, with handles that keep them alive.
pub(crate) fn nodes(a: &mut Arena, route: &GradientRoute) -> Vec<RuleNode> {
    let node = |f: &Ix| {
        let inputs = a.inputs(*f).to_vec();
        let handle = |v: Ix| {
            a.hold(v);
            Variable::adopt(a, v)
        };
        let inputs = inputs.into_iter().map(handle).collect();
        let n = a.n_outputs(*f);
        let outputs = (0..n).map(|o| {
            let v = a.revived(*f, o);
            Variable::adopt(a, v)
        });
        let outputs = outputs.collect();
        RuleNode { op: a.op(*f).clone(), context: a.context(*f), inputs, outputs }
    };
    route.order.iter().map(node).collect()
}

/// The context of a differentiation of computed values: hooks, and how to restore dropped values.
pub(crate) type RuleContext<'a, 'b> = (&'a mut RunHooks<'b>, &'a DifferentiateOptions<'a>, &'a Clearing);

/// Gradients of `outputs` by `inputs` as variables of the graph, which can be differentiated again. `grad_outputs`
/// are the seeds. `None` for an input that no output depends on.
///
/// # Errors
/// [`Error::Shape`] if a seed has another shape. [`Error::Graph`] if an operation has no rule.
pub fn grad(
    outputs: &[&Variable],
    inputs: &[&Variable],
    grad_outputs: &[Variable],
) -> Result<Vec<Option<Variable>>> {
    for (y, g) in outputs.iter().zip(grad_outputs) {
        let shape = y.shape();
        if g.shape() != shape {
            return Err(Error::shape(
                "grad",
                format!("a gradient of shape {shape} for the output"),
                [&g.shape()],
            ));
        }
    }
    let edges = |list: &[&Variable]| list.iter().map(|v| Edge::Variable((*v).clone())).collect::<Vec<_>>();
    let (roots, targets) = (edges(outputs), edges(inputs));
    let roots: Vec<&Edge> = roots.iter().collect();
    let (route, nodes) = arena::with(|a| {
        // A leaf may need a gradient only since the graph was built.
        let ends: Vec<Ix> = outputs.iter().map(|y| y.ix()).collect();
        setup::follow_leaves(a, &ends);
        let route = GradientRoute::make(a, &roots, Some(&targets), 0);
        let nodes = nodes(a, &route);
        (route, nodes)
    });
    let found = on_graph(&route, &nodes, grad_outputs, None)?;
    Ok(route.targets.iter().map(|slot| found[*slot as usize].clone()).collect())
}

/// Differentiates by the rules on symbols, from one seed for each root. Returns the requested gradients, by slot.
pub(crate) fn on_graph(
    route: &GradientRoute,
    nodes: &[RuleNode],
    seeds: &[Variable],
    mut company: Option<RuleContext<'_, '_>>,
) -> Result<Vec<Option<Variable>>> {
    let mut graph = GraphBuilder::default();
    let anomaly = modes::detect_anomaly();
    let mut total: Vec<Option<Sym>> = vec![None; route.slots.len()];
    let seeds: Vec<Sym> = seeds.iter().map(|g| graph.add(g.clone())).collect();
    build(&mut graph, || {
        for (slot, g) in route.roots.iter().zip(&seeds) {
            add_up(&mut total[*slot as usize], *g);
        }
    })?;
    for (n, node) in nodes.iter().enumerate().filter(|_| company.is_some()) {
        check(route.order[n], node.reads(route.inputs(n)))?;
    }
    for (n, node) in nodes.iter().enumerate() {
        let (outputs, inputs) = (route.outputs(n), route.inputs(n));
        if outputs.iter().all(|slot| total[*slot as usize].is_none()) {
            continue;
        }
        let f = route.order[n];
        let _context = Scope::context(node.context);
        if let Some((hooks, options, clearing)) = &mut company {
            for (slot, y) in outputs.iter().zip(&node.outputs) {
                show(hooks, *slot, &y.shape(), &mut graph, &mut total)?;
            }
            let reads = node.reads(inputs);
            restore(node, reads, clearing)?;
            check(f, reads)?;
            options.pre_hook.map_or(Ok(()), |hook| hook(&arena::with(|a| Function::counted(a, f))))?;
        }
        let applied = graph.apply_rule(node, outputs, inputs, &mut total);
        applied.map_err(|e| if anomaly { anomaly::in_gradient_of(f, e) } else { e })?;
        if let Some((_, options, _)) = &company {
            options.post_hook.map_or(Ok(()), |hook| hook(&arena::with(|a| Function::counted(a, f))))?;
        }
    }
    let mut found = vec![None; route.slots.len()];
    for slot in 0..route.slots.len() {
        let (kept, shape) = arena::with(|a| {
            let shape = a.shape(route.slots[slot].tensor).clone();
            (route.keeps(a, slot as u32), shape)
        });
        if !kept || total[slot].is_none() {
            continue;
        }
        if let Some((hooks, ..)) = &mut company {
            show(hooks, slot as u32, &shape, &mut graph, &mut total)?;
        }
        found[slot] = as_variable(total[slot], &shape, &mut graph)?;
    }
    Ok(found)
}

/// True for a leaf that is stored as `f32`: its gradient is too, in contexts of 16 bits, except in NNabla's dialect.
fn is_leaf_of_f32(v: &Variable) -> bool {
    let stored = |a: &mut Arena| a.existing_data(a.tensor(v.ix())).and_then(|data| data.dtype());
    !is_nnabla() && arena::with(|a| a.parent(v.ix()) == NONE && stored(a) == Some(DType::F32))
}

/// Adds a gradient to a sum that may not exist yet.
fn add_up(total: &mut Option<Sym>, g: Sym) {
    *total = Some(total.map_or(g, |sum| sum + g));
}

/// Builds the variable of a symbolic gradient of this shape.
fn as_variable(g: Option<Sym>, shape: &Shape, graph: &mut GraphBuilder) -> Result<Option<Variable>> {
    let node = build(graph, || g.map(|g| g.node(shape)))?;
    Ok(node.map(|node| graph.0[node as usize].clone()))
}

/// Calls the hooks on the gradient in a slot, and replaces the gradient by the value that they return.
fn show(
    hooks: &mut RunHooks<'_>,
    slot: u32,
    shape: &Shape,
    graph: &mut GraphBuilder,
    total: &mut [Option<Sym>],
) -> Result<()> {
    if !hooks.has(slot) {
        return Ok(());
    }
    if let Some(g) = as_variable(total[slot as usize], shape, graph)?
        && let Some(changed) = hooks.on_variable(slot, &g)?
    {
        total[slot as usize] = Some(graph.add(changed));
    }
    Ok(())
}

/// Recomputes values that a rule reads and that were dropped on purpose.
fn restore(node: &RuleNode, reads: Reads, clearing: &Clearing) -> Result<()> {
    let read_inputs = node.inputs.iter().enumerate().filter(|(i, _)| reads.input(*i));
    let read_outputs = node.outputs.iter().enumerate().filter(|(o, _)| reads.output(*o));
    for (_, v) in read_inputs.chain(read_outputs) {
        if v.may_be_dropped() && v.parent().is_some() && v.data().storage.is_cleared() {
            restore::restore(v.ix(), clearing)?;
        }
    }
    Ok(())
}

/// Returns an error if a value that a rule reads changed since the forward run.
fn check(f: Ix, reads: Reads) -> Result<()> {
    let changed = arena::with(|a| {
        let (x, y) = arena::tensors(a, f);
        let data = |tensor: &Ix, read: bool| a.existing_data(*tensor).map(|data| &**data).filter(|_| read);
        let x = x.iter().enumerate().map(|(i, tensor)| data(tensor, reads.input(i)));
        let y = y.iter().enumerate().map(|(o, tensor)| data(tensor, reads.output(o)));
        a.provenance(f).modified(x, y)
    });
    changed.map_or(Ok(()), |which| Err(Error::Modified(which.describe(f))))
}
