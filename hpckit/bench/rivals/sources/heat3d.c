/* One explicit step of the heat equation with a coefficient field, 7-point star, as one writes it in C.
   f, c, out: double[n][n][n]; factor: dt / h^2, the same in all dims; planes from first to stop. */
void heat3d(double *restrict out, const double *restrict f, const double *restrict c, double factor, long n,
            long first, long stop)
{
    const long row = n, plane = n * n;
    for (long i = first; i < stop; i++)
        for (long j = 1; j < n - 1; j++)
            for (long k = 1; k < n - 1; k++) {
                const long p = i * plane + j * row + k;
                out[p] = f[p] + c[p] * (factor * (f[p - plane] - 2 * f[p] + f[p + plane])
                                        + factor * (f[p - row] - 2 * f[p] + f[p + row])
                                        + factor * (f[p - 1] - 2 * f[p] + f[p + 1]));
            }
}
