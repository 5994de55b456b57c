"""Geometry and images."""

import math

import numpy as np

from bench.loop_programs.own.program import Own


def points_in_polygon(points, polygon):
    inside = np.zeros(len(points), dtype=bool)
    n = len(polygon)
    for k in range(len(points)):
        x, y = points[k]
        odd = False
        j = n - 1
        for i in range(n):
            xi, yi = polygon[i, 0], polygon[i, 1]
            xj, yj = polygon[j, 0], polygon[j, 1]
            if (yi > y) != (yj > y) and x < (xj - xi) * (y - yi) / (yj - yi) + xi:
                odd = not odd
            j = i
        inside[k] = odd
    return inside


def cross(o, a, b):
    return (a[0] - o[0]) * (b[1] - o[1]) - (a[1] - o[1]) * (b[0] - o[0])


def convex_hull(points):
    order = np.lexsort((points[:, 1], points[:, 0]))
    p = points[order]
    hull = np.zeros(2 * len(p), dtype=int)
    k = 0
    for i in range(len(p)):
        while k >= 2 and cross(p[hull[k - 2]], p[hull[k - 1]], p[i]) <= 0:
            k -= 1
        hull[k] = i
        k += 1
    lower = k + 1
    for i in range(len(p) - 2, -1, -1):
        while k >= lower and cross(p[hull[k - 2]], p[hull[k - 1]], p[i]) <= 0:
            k -= 1
        hull[k] = i
        k += 1
    return order[hull[:k - 1]]


def closest_pair(points):
    best = float("inf")
    pair = None
    for i in range(len(points)):
        for j in range(i + 1, len(points)):
            dx = points[i, 0] - points[j, 0]
            if dx * dx >= best:
                continue
            dy = points[i, 1] - points[j, 1]
            d = dx * dx + dy * dy
            if d < best:
                best = d
                pair = (i, j)
    return math.sqrt(best), pair


def rasterize(triangles, depth, image):
    height, width = depth.shape
    for t in range(len(triangles)):
        (x0, y0, z0), (x1, y1, z1), (x2, y2, z2) = triangles[t]
        area = (x1 - x0) * (y2 - y0) - (x2 - x0) * (y1 - y0)
        if area == 0:
            continue
        for y in range(max(0, int(min(y0, y1, y2))), min(height, int(max(y0, y1, y2)) + 1)):
            for x in range(max(0, int(min(x0, x1, x2))), min(width, int(max(x0, x1, x2)) + 1)):
                w0 = ((x1 - x) * (y2 - y) - (x2 - x) * (y1 - y)) / area
                w1 = ((x2 - x) * (y0 - y) - (x0 - x) * (y2 - y)) / area
                w2 = 1 - w0 - w1
                if w0 < 0 or w1 < 0 or w2 < 0:
                    continue
                z = w0 * z0 + w1 * z1 + w2 * z2
                if z < depth[y, x]:
                    depth[y, x] = z
                    image[y, x] = t + 1
    return image


def hit_sphere(ox, oy, oz, dx, dy, dz, cx, cy, cz, r):
    lx, ly, lz = cx - ox, cy - oy, cz - oz
    along = lx * dx + ly * dy + lz * dz
    if along < 0:
        return -1.0
    d2 = lx * lx + ly * ly + lz * lz - along * along
    if d2 > r * r:
        return -1.0
    return along - math.sqrt(r * r - d2)


def ray_caster(spheres, width, height):
    image = np.zeros((height, width))
    for py in range(height):
        for px in range(width):
            x = (px - width / 2) / width
            y = (py - height / 2) / height
            norm = math.sqrt(x * x + y * y + 1)
            nearest = 1e9
            shade = 0.0
            for k in range(spheres.shape[0]):
                t = hit_sphere(0.0, 0.0, 0.0, x / norm, y / norm, 1 / norm,
                               spheres[k, 0], spheres[k, 1], spheres[k, 2], spheres[k, 3])
                if t > 0 and t < nearest:
                    nearest = t
                    shade = 1.0 / (1.0 + t)
            image[py, px] = shade
    return image


def resize_bilinear(image, rows, cols):
    out = np.zeros((rows, cols))
    for i in range(rows):
        for j in range(cols):
            y = i * (image.shape[0] - 1) / (rows - 1)
            x = j * (image.shape[1] - 1) / (cols - 1)
            y0, x0 = int(y), int(x)
            y1 = min(y0 + 1, image.shape[0] - 1)
            x1 = min(x0 + 1, image.shape[1] - 1)
            fy, fx = y - y0, x - x0
            top = image[y0, x0] * (1 - fx) + image[y0, x1] * fx
            bottom = image[y1, x0] * (1 - fx) + image[y1, x1] * fx
            out[i, j] = top * (1 - fy) + bottom * fy
    return out


def distance_transform(mask):
    h, w = mask.shape
    d = np.where(mask, 0.0, 1e6)
    for i in range(h):
        for j in range(w):
            if i > 0:
                d[i, j] = min(d[i, j], d[i - 1, j] + 1.0)
            if j > 0:
                d[i, j] = min(d[i, j], d[i, j - 1] + 1.0)
            if i > 0 and j > 0:
                d[i, j] = min(d[i, j], d[i - 1, j - 1] + 1.41421356)
    for i in range(h - 1, -1, -1):
        for j in range(w - 1, -1, -1):
            if i < h - 1:
                d[i, j] = min(d[i, j], d[i + 1, j] + 1.0)
            if j < w - 1:
                d[i, j] = min(d[i, j], d[i, j + 1] + 1.0)
            if i < h - 1 and j < w - 1:
                d[i, j] = min(d[i, j], d[i + 1, j + 1] + 1.41421356)
    return d


def rotate_points(points, angles):
    out = points.copy()
    for angle in angles:
        c, s = np.cos(angle), np.sin(angle)
        rotation = np.array([[c, -s], [s, c]])
        for i in range(len(out)):
            out[i] = rotation @ out[i]
    return out


def label_regions(image):
    labels = np.zeros(image.shape, dtype=np.int64)
    current = 0
    for i in range(image.shape[0]):
        for j in range(image.shape[1]):
            if not image[i, j] or labels[i, j] > 0:
                continue
            current += 1
            labels[i, j] = current
            stack = [(i, j)]
            while stack:
                y, x = stack.pop()
                for yy, xx in ((y - 1, x), (y + 1, x), (y, x - 1), (y, x + 1)):
                    if yy < 0 or xx < 0 or yy >= image.shape[0] or xx >= image.shape[1]:
                        continue
                    if image[yy, xx] and labels[yy, xx] == 0:
                        labels[yy, xx] = current
                        stack.append((yy, xx))
    return labels, current


def regular_polygon(corners):
    angle = np.arange(corners) * 2 * np.pi / corners
    return np.stack([0.5 + 0.4 * np.cos(angle), 0.5 + 0.4 * np.sin(angle)], axis=1)


def random_triangles(g, n):
    corners = g.random((n, 1, 3)) * [60, 60, 1] + g.normal(size=(n, 3, 3)) * [8, 8, 0.1]
    return corners, np.full((60, 60), np.inf), np.zeros((60, 60), dtype=np.int32)


PROGRAMS = (
    Own(points_in_polygon, lambda g, n: (g.random((n, 2)), regular_polygon(20)), 1500, 5),
    Own(convex_hull, lambda g, n: (g.normal(size=(n, 2)),), 8000, 9, ("cross",)),
    Own(closest_pair, lambda g, n: (g.random((n, 2)),), 400, 6),
    Own(rasterize, random_triangles, 100, 3),
    Own(ray_caster, lambda g, n: (np.concatenate([g.normal(size=(6, 2)) * 2, 5 + g.random((6, 1)) * 4,
                                                  0.5 + g.random((6, 1))], axis=1), n, n), 60, 5),
    Own(resize_bilinear, lambda g, n: (g.random((40, 50)), n, n + 10), 130, 6),
    Own(distance_transform, lambda g, n: (g.random((n, n)) < 0.01,), 130, 6),
    Own(rotate_points, lambda g, n: (g.random((n, 2)), np.array([0.1, 0.5, 1.0])), 7000, 4),
    Own(label_regions, lambda g, n: (g.random((n, n)) < 0.55,), 130, 6),
)
