"""Simulations: cells, particles, fluids, traffic."""

import numpy as np

from bench.loop_programs.own.program import Own


def energy_change(spins, i, j):
    n, m = spins.shape
    around = spins[(i - 1) % n, j] + spins[(i + 1) % n, j] + spins[i, (j - 1) % m] + spins[i, (j + 1) % m]
    return 2 * spins[i, j] * around


def ising(spins, draws, beta):
    accepted = 0
    for sweep in range(draws.shape[0]):
        for i in range(spins.shape[0]):
            for j in range(spins.shape[1]):
                change = energy_change(spins, i, j)
                if change <= 0 or draws[sweep, i, j] < np.exp(-beta * change):
                    spins[i, j] = -spins[i, j]
                    accepted += 1
    return accepted, spins.sum()


def heat_rod(u, alpha, steps):
    new = u.copy()
    for _ in range(steps):
        new[1:-1] = u[1:-1] + alpha * (u[2:] - 2 * u[1:-1] + u[:-2])
        new[0] = new[1]
        new[-1] = new[-2]
        u, new = new, u
    return u


def membrane(u, c2, damping, steps):
    previous = u.copy()
    energy = np.zeros(steps)
    for step in range(steps):
        inner = u[1:-1, 1:-1]
        laplacian = u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:] - 4 * inner
        following = np.zeros_like(u)
        following[1:-1, 1:-1] = (2 - damping) * inner - (1 - damping) * previous[1:-1, 1:-1] + c2 * laplacian
        previous = u
        u = following
        energy[step] = np.sum(u ** 2)
    return u, energy


def growth_rates(prey, predator, a, b, c, d):
    return prey * (a - b * predator), predator * (c * prey - d)


def predator_prey(steps, dt):
    out = np.empty((steps, 2))
    x, y = 10.0, 5.0
    for i in range(steps):
        out[i, 0] = x
        out[i, 1] = y
        dx1, dy1 = growth_rates(x, y, 1.1, 0.4, 0.1, 0.4)
        dx2, dy2 = growth_rates(x + 0.5 * dt * dx1, y + 0.5 * dt * dy1, 1.1, 0.4, 0.1, 0.4)
        dx3, dy3 = growth_rates(x + 0.5 * dt * dx2, y + 0.5 * dt * dy2, 1.1, 0.4, 0.1, 0.4)
        dx4, dy4 = growth_rates(x + dt * dx3, y + dt * dy3, 1.1, 0.4, 0.1, 0.4)
        x += dt / 6 * (dx1 + 2 * dx2 + 2 * dx3 + dx4)
        y += dt / 6 * (dy1 + 2 * dy2 + 2 * dy3 + dy4)
    return out


def forest_fire(forest, sparks, steps):
    # 0 empty, 1 tree, 2 burning
    rows, cols = forest.shape
    burnt = 0
    for step in range(steps):
        new = forest.copy()
        for r in range(rows):
            for c in range(cols):
                if forest[r, c] == 2:
                    new[r, c] = 0
                    burnt += 1
                    continue
                if forest[r, c] == 0:
                    continue
                near = False
                for dr, dc in ((-1, 0), (1, 0), (0, -1), (0, 1)):
                    rr = r + dr
                    cc = c + dc
                    if rr < 0 or cc < 0 or rr >= rows or cc >= cols:
                        continue
                    if forest[rr, cc] == 2:
                        near = True
                        break
                if near or sparks[step, r, c] < 0.001:
                    new[r, c] = 2
        forest = new
    return forest, burnt


def gravity(pos, vel, mass, dt, steps):
    n = len(mass)
    for _ in range(steps):
        acc = np.zeros_like(pos)
        for i in range(n):
            for j in range(n):
                if i == j:
                    continue
                d = pos[j] - pos[i]
                r = np.sqrt(np.dot(d, d) + 0.01)
                acc[i] += mass[j] * d / r ** 3
        vel += acc * dt
        pos += vel * dt
    return 0.5 * np.sum(mass * np.sum(vel ** 2, axis=1))


def traffic(road, speed, brakes, steps, vmax):
    # Nagel and Schreckenberg: road holds -1 or the number of a car
    length = len(road)
    moved = 0
    for t in range(steps):
        for x in range(length):
            if road[x] < 0:
                continue
            car = road[x]
            v = min(speed[car] + 1, vmax)
            gap = 1
            while gap <= v and road[(x + gap) % length] < 0:
                gap += 1
            v = min(v, gap - 1)
            if brakes[t, car] < 0.3 and v > 0:
                v -= 1
            speed[car] = v
        new_road = np.full(length, -1)
        for x in range(length):
            if road[x] >= 0:
                car = road[x]
                new_road[(x + speed[car]) % length] = car
                moved += speed[car]
        road = new_road
    return road, moved


def sandpile(grid):
    topplings = 0
    while True:
        over = grid >= 4
        if not over.any():
            break
        topplings += np.count_nonzero(over)
        grid[over] -= 4
        grid[1:, :] += over[:-1, :]
        grid[:-1, :] += over[1:, :]
        grid[:, 1:] += over[:, :-1]
        grid[:, :-1] += over[:, 1:]
    return topplings


def random_walks(steps, n):
    moves_x = np.array([1, -1, 0, 0])
    moves_y = np.array([0, 0, 1, -1])
    visited = np.zeros((n, n), dtype=np.int64)
    x = y = n // 2
    returns = 0
    for s in steps:
        x = (x + moves_x[s]) % n
        y = (y + moves_y[s]) % n
        visited[x, y] += 1
        if x == n // 2 and y == n // 2:
            returns += 1
    return visited, returns


def spring_chain(x, v, k, dt, steps):
    history = []
    for step in range(steps):
        force = np.zeros(len(x))
        stretch = x[1:] - x[:-1] - 1.0
        force[:-1] += k * stretch
        force[1:] -= k * stretch
        v = v + dt * force
        x = x + dt * v
        if step % 50 == 0:
            history.append(float(np.abs(stretch).max()))
    return x, v, history


def traffic_inputs(g, n):
    road = np.full(n, -1)
    cars = np.sort(g.permutation(n)[:n // 4])
    road[cars] = np.arange(len(cars))
    return road, np.zeros(len(cars), dtype=np.int64), g.random((40, len(cars))), 40, 5


PROGRAMS = (
    Own(ising, lambda g, n: (g.choice([-1, 1], (n, n)), g.random((2, n, n)), 0.4), 64, 5, ("energy_change",)),
    Own(heat_rod, lambda g, n: (g.random(400), 0.25, n), 1500, 5),
    Own(membrane, lambda g, n: (g.random((60, 80)), 0.2, 0.01, n), 400, 4),
    Own(predator_prey, lambda g, n: (n, 0.01), 12000, 10),
    Own(forest_fire, lambda g, n: (g.choice([0, 1, 1, 1, 2], (n, n)), g.random((4, n, n)), 4), 70, 6),
    Own(gravity, lambda g, n: (g.random((n, 3)), g.random((n, 3)), g.random(n), 0.01, 3), 50, 4),
    Own(traffic, traffic_inputs, 600, 30),
    Own(sandpile, lambda g, n: (g.integers(0, 7, (n, n)),), 50, 6),
    Own(random_walks, lambda g, n: (g.integers(0, 4, n), 51), 60000, 50),
    Own(spring_chain, lambda g, n: (np.arange(200) * 1.1, np.zeros(200), 4.0, 0.01, n), 1500, 60),
)
