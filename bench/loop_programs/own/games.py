"""Games and puzzles."""

import numpy as np

from bench.loop_programs.own.program import Own


def life_slices(grid, generations):
    for _ in range(generations):
        padded = np.pad(grid, 1)
        neighbours = (padded[:-2, :-2] + padded[:-2, 1:-1] + padded[:-2, 2:] + padded[1:-1, :-2]
                      + padded[1:-1, 2:] + padded[2:, :-2] + padded[2:, 1:-1] + padded[2:, 2:])
        grid = ((neighbours == 3) | ((grid == 1) & (neighbours == 2))).astype(int)
    return grid


def queens(n):
    column = np.full(n, -1)
    solutions = 0
    row = 0
    while row >= 0:
        column[row] += 1
        while column[row] < n:
            safe = True
            for r in range(row):
                if column[r] == column[row] or abs(column[r] - column[row]) == row - r:
                    safe = False
                    break
            if safe:
                break
            column[row] += 1
        if column[row] >= n:
            column[row] = -1
            row -= 1
        elif row == n - 1:
            solutions += 1
        else:
            row += 1
    return solutions


def allowed(board, row, col, digit):
    for k in range(9):
        if board[row, k] == digit or board[k, col] == digit:
            return False
    r0 = 3 * (row // 3)
    c0 = 3 * (col // 3)
    for r in range(r0, r0 + 3):
        for c in range(c0, c0 + 3):
            if board[r, c] == digit:
                return False
    return True


def sudoku(board):
    rows, cols = np.where(board == 0)
    k = 0
    tries = 0
    while k < len(rows):
        r, c = rows[k], cols[k]
        digit = board[r, c] + 1
        board[r, c] = 0
        while digit <= 9 and not allowed(board, r, c, digit):
            digit += 1
            tries += 1
        if digit <= 9:
            board[r, c] = digit
            k += 1
        else:
            k -= 1
            if k < 0:
                return tries
    return tries


def winner(board):
    for i in range(3):
        if board[i, 0] != 0 and board[i, 0] == board[i, 1] == board[i, 2]:
            return board[i, 0]
        if board[0, i] != 0 and board[0, i] == board[1, i] == board[2, i]:
            return board[0, i]
    middle = board[1, 1]
    if middle != 0 and (board[0, 0] == middle == board[2, 2] or board[0, 2] == middle == board[2, 0]):
        return middle
    return 0


def minimax(board, player):
    w = winner(board)
    if w != 0:
        return w
    best = -2
    for i in range(3):
        for j in range(3):
            if board[i, j] == 0:
                board[i, j] = player
                score = player * minimax(board, -player)
                board[i, j] = 0
                if score > best:
                    best = score
    if best == -2:
        return 0
    return player * best


def flood_maze(walls, row, col):
    steps = np.full(walls.shape, -1)
    stack = [(row, col)]
    steps[row, col] = 0
    filled = 0
    while len(stack) > 0:
        next_stack = []
        for r, c in stack:
            filled += 1
            for dr, dc in ((1, 0), (-1, 0), (0, 1), (0, -1)):
                rr, cc = r + dr, c + dc
                if 0 <= rr < walls.shape[0] and 0 <= cc < walls.shape[1]:
                    if not walls[rr, cc] and steps[rr, cc] < 0:
                        steps[rr, cc] = steps[r, c] + 1
                        next_stack.append((rr, cc))
        stack = next_stack
    return steps, filled


def mine_counts(mines):
    rows, cols = mines.shape
    counts = np.zeros((rows, cols), dtype=np.int8)
    for r in range(rows):
        for c in range(cols):
            if mines[r, c]:
                counts[r, c] = -1
                continue
            total = 0
            for rr in range(max(r - 1, 0), min(r + 2, rows)):
                for cc in range(max(c - 1, 0), min(c + 2, cols)):
                    total += mines[rr, cc]
            counts[r, c] = total
    return counts


def elo_ratings(home, away, results, players, k):
    rating = np.full(players, 1500.0)
    surprise = 0
    for h, a, result in zip(home, away, results, strict=True):
        expected = 1 / (1 + 10 ** ((rating[a] - rating[h]) / 400))
        change = k * (result - expected)
        rating[h] += change
        rating[a] -= change
        if abs(result - expected) > 0.7:
            surprise += 1
    return rating, surprise


def four_in_a_row(boards):
    wins = np.zeros(3, dtype=int)
    for board in boards:
        found = 0
        for r in range(6):
            for c in range(7):
                piece = board[r, c]
                if piece == 0 or found:
                    continue
                if c <= 3 and (board[r, c:c + 4] == piece).all():
                    found = piece
                elif r <= 2 and (board[r:r + 4, c] == piece).all():
                    found = piece
        wins[found] += 1
    return wins


def digits(rows):
    return np.array([[int(c) for c in row] for row in rows.split()])


def first_moves(g, n):
    board = np.zeros((3, 3), dtype=int)
    board[1, 1] = 1
    board[0, 0] = -1
    if n < 9:
        board[0, 1], board[2, 1], board[2, 0] = 1, -1, -1
    return board, 1


PUZZLE = digits("530070000 600195000 098000060 800060003 400803001 700020006 060000280 000419005 000080079")
SOLUTION = digits("534678912 672195348 198342567 859761423 426853791 713924856 961537284 287419635 345286179")

PROGRAMS = (
    Own(life_slices, lambda g, n: (g.integers(0, 2, (100, 100)), n), 100, 3),
    Own(queens, lambda g, n: (n,), 8, 4),
    Own(sudoku, lambda g, n: (np.where(np.arange(81).reshape(9, 9) < n, PUZZLE, SOLUTION),), 81, 9,
        ("allowed",)),
    Own(minimax, first_moves, 9, 4),
    Own(flood_maze, lambda g, n: (g.random((n, n)) < 0.25, n // 2, n // 2), 120, 6),
    Own(mine_counts, lambda g, n: (g.random((n, n)) < 0.15,), 90, 5),
    Own(elo_ratings, lambda g, n: (g.integers(0, 50, n), g.integers(50, 100, n), g.choice([0, 0.5, 1], n),
        100, 24),
        30000, 9),
    Own(four_in_a_row, lambda g, n: (g.integers(0, 3, (n, 6, 7)),), 200, 3),
)
