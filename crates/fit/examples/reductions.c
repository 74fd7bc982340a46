/* A loop of OpenMP reductions: about 10 us of work between two barriers for one thread. Prints seconds a
 * thousand reductions. */
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv)
{
	enum { LENGTH = 8192 };
	static double numbers[LENGTH];
	long count = argc > 1 ? atol(argv[1]) : 10000;
	double sum = 0;

	for (int i = 0; i < LENGTH; i++)
		numbers[i] = i;
	double start = omp_get_wtime();
	for (long round = 0; round < count; round++) {
#pragma omp parallel for reduction(+ : sum)
		for (int i = 0; i < LENGTH; i++)
			sum += numbers[i] * 1e-9;
	}
	printf("%.9f\n", omp_get_wtime() - start);
	return sum < 0;
}
