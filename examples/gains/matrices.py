"""A program of NumPy: products of small matrices. `python3 matrices.py` prints how long they took."""

import time

import numpy

a, b = numpy.random.rand(300, 300), numpy.random.rand(300, 300)
begin = time.monotonic()
for _ in range(1500):
    numpy.linalg.norm(a @ b)
print(f"1500 products: {time.monotonic() - begin:.2f} s")
