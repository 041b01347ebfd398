"""DQN: a network learns to catch a ball that falls through a small field."""

import argparse

import nnabla as nn
import nnabla.functions as F
import nnabla.parametric_functions as PF
import nnabla.solvers as S
import numpy as np

ROWS, COLUMNS, GAMMA, BATCH = 6, 5, 0.9, 32


class Catch:
    """The game. The ball starts in any column, the paddle in the middle. The reward at the bottom is 1 or -1."""

    def __init__(self, rng):
        self.rng = rng

    def reset(self):
        """Starts a new ball. Returns the observation."""
        self.row, self.ball, self.paddle = 0, self.rng.randint(COLUMNS), COLUMNS // 2
        return self.seen()

    def seen(self):
        """Returns an image of the ball and one of the paddle."""
        field = np.zeros((2, ROWS, COLUMNS), np.float32)
        field[0, self.row, self.ball] = field[1, -1, self.paddle] = 1
        return field.ravel()

    def step(self, action):
        """Moves: action 0 goes left, 2 right. Returns the observation, the reward, and true if the ball is down."""
        self.row += 1
        self.paddle = int(np.clip(self.paddle + action - 1, 0, COLUMNS - 1))
        done = self.row == ROWS - 1
        return self.seen(), (1.0 if self.ball == self.paddle else -1.0) if done else 0.0, done


def q_values(x, scope):
    """Returns the value of each action."""
    with nn.parameter_scope(scope):
        return PF.affine(F.relu(PF.affine(x, 64, name="hidden")), 3, name="out")


def copy_parameters():
    """Copies the parameters of the network to the target network."""
    with nn.parameter_scope("q"):
        source = nn.get_parameters()
    with nn.parameter_scope("target"):
        for name, parameter in nn.get_parameters().items():
            parameter.data.copy_from(source[name].data)


class Agent:
    """Chooses the action with the highest value, or a random one."""

    def __init__(self, rng):
        self.rng = rng
        self.x = nn.Variable((1, 2 * ROWS * COLUMNS))
        self.q = q_values(self.x, "q")

    def act(self, seen, epsilon):
        """Returns an action, a random one with probability `epsilon`."""
        if self.rng.rand() < epsilon:
            return self.rng.randint(3)
        self.x.d = seen
        self.q.forward()
        return int(np.argmax(self.q.d))


def mean_return(agent, game, episodes=100):
    """Returns the mean reward of greedy play."""
    total = 0.0
    for _ in range(episodes):
        seen, done = game.reset(), False
        while not done:
            seen, reward, done = game.step(agent.act(seen, 0.0))
            total += reward
    return total / episodes


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=3000)
    args = parser.parse_args()

    nn.seed(7)
    rng = np.random.RandomState(0)
    game, agent = Catch(rng), Agent(rng)
    x, following = nn.Variable((BATCH, 2 * ROWS * COLUMNS)), nn.Variable((BATCH, 2 * ROWS * COLUMNS))
    action, reward, done = nn.Variable((BATCH, 1)), nn.Variable((BATCH,)), nn.Variable((BATCH,))
    best = F.max(q_values(following, "target"), axis=1)
    goal = reward + GAMMA * (1 - done) * best
    goal.need_grad = False
    taken = F.sum(q_values(x, "q") * F.one_hot(action, (3,)), axis=1)
    loss = F.mean(F.huber_loss(taken, goal))
    solver = S.Adam(2e-3)
    with nn.parameter_scope("q"):
        solver.set_parameters(nn.get_parameters())
    copy_parameters()

    before = mean_return(agent, game)
    memory, seen = [], game.reset()
    for step in range(args.steps):
        chosen = agent.act(seen, max(0.1, 1 - 2 * step / args.steps))
        new, gain, ended = game.step(chosen)
        memory.append((seen, [chosen], gain, new, float(ended)))
        seen = game.reset() if ended else new
        if len(memory) < 200:
            continue
        batch = zip(*(memory[i] for i in rng.randint(len(memory), size=BATCH)), strict=True)
        for variable, values in zip((x, action, reward, following, done), batch, strict=True):
            variable.d = np.array(values)
        loss.forward(clear_no_need_grad=True)
        solver.zero_grad()
        loss.backward(clear_buffer=True)
        solver.update()
        if step % 100 == 0:
            copy_parameters()
    print(f"mean return {before:.2f} -> {mean_return(agent, game):.2f}")


if __name__ == "__main__":
    main()
