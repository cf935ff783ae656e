/* The divergence star of the Parallel Research Kernels, radius R given to the compiler: out += star(in), double[n][n]. */
#define AT(j, i) in[(j) * n + (i)]

void star(double *restrict out, const double *restrict in, long n)
{
    for (long j = R; j < n - R; j++)
        for (long i = R; i < n - R; i++) {
            double sum = 0;
            for (int k = 1; k <= R; k++)
                sum += (AT(j, i + k) - AT(j, i - k) + AT(j + k, i) - AT(j - k, i)) / (2.0 * k * R);
            out[j * n + i] += sum;
        }
}
