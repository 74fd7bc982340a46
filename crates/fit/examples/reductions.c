/* A loop of OpenMP reductions: COUNT times, of LENGTH numbers each. With 8192 numbers, one thread works for
 * about 10 us between two barriers. Prints the seconds that the loop took. */
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv)
{
	enum { MOST = 8192 };
	static double numbers[MOST];
	long count = argc > 1 ? atol(argv[1]) : 10000;
	int length = argc > 2 ? atoi(argv[2]) : MOST;
	double sum = 0;

	if (length < 1 || length > MOST)
		return 2;
	for (int i = 0; i < length; i++)
		numbers[i] = i;
	double start = omp_get_wtime();
	for (long round = 0; round < count; round++) {
#pragma omp parallel for reduction(+ : sum)
		for (int i = 0; i < length; i++)
			sum += numbers[i] * 1e-9;
	}
	printf("%.9f\n", omp_get_wtime() - start);
	return sum < 0;
}
