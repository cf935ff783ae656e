/* The slab scheme as a modeler would write it in plain C: one loop nest for each operation, pow for the pressure.
 *
 * Fields [4][nz + 4][nx + 4] with two cells of halo: rho', rho u, rho w, (rho theta)'. Equations and fluxes:
 * kernels/euler/slab/reference.py. */
#include <math.h>
#include <stddef.h>
#include <stdlib.h>

enum { RHO, RHO_U, RHO_W, RHO_THETA, FIELDS };

static const double C0 = 27.5629410929725921310572974482;
static const double GAMMA = 1.40027894002789400278940027894;
static const double GRAVITY = 9.8;

typedef struct {
    int nx, nz;
    double dx, dz, beta;
    const double *column; /* [3][nz]: rho, rho theta, pressure at cells */
    const double *faces;  /* [3][nz + 1]: the same at interfaces */
    const double *ghost;  /* [4]: rho of the rows outside the walls over that of the row inside */
    double *flux, *tendency;
} Slab;

static size_t cell(const Slab *s, int field, int k, int i) {
    return ((size_t)field * (s->nz + 4) + k) * (s->nx + 4) + i;
}

static size_t face(const Slab *s, int field, int k, int i) {
    return ((size_t)field * (s->nz + 1) + k) * (s->nx + 1) + i;
}

static void set_halo_x(const Slab *s, double *q) {
    for (int field = 0; field < FIELDS; field++)
        for (int k = 2; k < s->nz + 2; k++) {
            q[cell(s, field, k, 0)] = q[cell(s, field, k, s->nx)];
            q[cell(s, field, k, 1)] = q[cell(s, field, k, s->nx + 1)];
            q[cell(s, field, k, s->nx + 2)] = q[cell(s, field, k, 2)];
            q[cell(s, field, k, s->nx + 3)] = q[cell(s, field, k, 3)];
        }
}

static void set_halo_z(const Slab *s, double *q) {
    const int outside[4] = {0, 1, s->nz + 2, s->nz + 3}, edge[4] = {2, 2, s->nz + 1, s->nz + 1};
    for (int field = 0; field < FIELDS; field++)
        for (int row = 0; row < 4; row++)
            for (int i = 2; i < s->nx + 2; i++) {
                double value = q[cell(s, field, edge[row], i)];
                if (field == RHO_W) value = 0.0;
                if (field == RHO_U) value *= s->ghost[row];
                q[cell(s, field, outside[row], i)] = value;
            }
}

static void flux_x(const Slab *s, const double *q, double dt) {
    const double nu = s->beta * s->dx / (16 * dt);
    for (int k = 0; k < s->nz; k++)
        for (int i = 0; i < s->nx + 1; i++) {
            double value[FIELDS], third[FIELDS];
            for (int field = 0; field < FIELDS; field++) {
                const double *at = q + cell(s, field, k + 2, i);
                value[field] = -at[0] / 12 + 7 * at[1] / 12 + 7 * at[2] / 12 - at[3] / 12;
                third[field] = -at[0] + 3 * at[1] - 3 * at[2] + at[3];
            }
            const double rho = value[RHO] + s->column[k];
            const double u = value[RHO_U] / rho, w = value[RHO_W] / rho;
            const double theta = (value[RHO_THETA] + s->column[s->nz + k]) / rho;
            const double p = C0 * pow(rho * theta, GAMMA);
            s->flux[face(s, RHO, k, i)] = rho * u + nu * third[RHO];
            s->flux[face(s, RHO_U, k, i)] = rho * u * u + p + nu * third[RHO_U];
            s->flux[face(s, RHO_W, k, i)] = rho * u * w + nu * third[RHO_W];
            s->flux[face(s, RHO_THETA, k, i)] = rho * u * theta + nu * third[RHO_THETA];
        }
}

static void tendency_x(const Slab *s) {
    for (int field = 0; field < FIELDS; field++)
        for (int k = 0; k < s->nz; k++)
            for (int i = 0; i < s->nx; i++)
                s->tendency[((size_t)field * s->nz + k) * s->nx + i] =
                    -(s->flux[face(s, field, k, i + 1)] - s->flux[face(s, field, k, i)]) / s->dx;
}

static void flux_z(const Slab *s, const double *q, double dt) {
    const double nu = s->beta * s->dz / (16 * dt);
    const size_t up = s->nx + 4;
    for (int k = 0; k < s->nz + 1; k++)
        for (int i = 0; i < s->nx; i++) {
            double value[FIELDS], third[FIELDS];
            for (int field = 0; field < FIELDS; field++) {
                const double *at = q + cell(s, field, k, i + 2);
                value[field] = -at[0] / 12 + 7 * at[up] / 12 + 7 * at[2 * up] / 12 - at[3 * up] / 12;
                third[field] = -at[0] + 3 * at[up] - 3 * at[2 * up] + at[3 * up];
            }
            const double rho = value[RHO] + s->faces[k];
            const double u = value[RHO_U] / rho;
            double w = value[RHO_W] / rho;
            const double theta = (value[RHO_THETA] + s->faces[s->nz + 1 + k]) / rho;
            const double p = C0 * pow(rho * theta, GAMMA) - s->faces[2 * (s->nz + 1) + k];
            if (k == 0 || k == s->nz) {
                w = 0;
                third[RHO] = 0;
            }
            s->flux[face(s, RHO, k, i)] = rho * w + nu * third[RHO];
            s->flux[face(s, RHO_U, k, i)] = rho * w * u + nu * third[RHO_U];
            s->flux[face(s, RHO_W, k, i)] = rho * w * w + p + nu * third[RHO_W];
            s->flux[face(s, RHO_THETA, k, i)] = rho * w * theta + nu * third[RHO_THETA];
        }
}

static void tendency_z(const Slab *s, const double *q) {
    for (int field = 0; field < FIELDS; field++)
        for (int k = 0; k < s->nz; k++)
            for (int i = 0; i < s->nx; i++) {
                double change = -(s->flux[face(s, field, k + 1, i)] - s->flux[face(s, field, k, i)]) / s->dz;
                if (field == RHO_W) change -= GRAVITY * q[cell(s, RHO, k + 2, i + 2)];
                s->tendency[((size_t)field * s->nz + k) * s->nx + i] = change;
            }
}

static void update(const Slab *s, const double *start, double *out, double dt) {
    for (int field = 0; field < FIELDS; field++)
        for (int k = 0; k < s->nz; k++)
            for (int i = 0; i < s->nx; i++)
                out[cell(s, field, k + 2, i + 2)] =
                    start[cell(s, field, k + 2, i + 2)] + dt * s->tendency[((size_t)field * s->nz + k) * s->nx + i];
}

static void stage(const Slab *s, int direction, const double *start, double *now, double *out, double dt) {
    if (direction == 0) {
        set_halo_x(s, now);
        flux_x(s, now, dt);
        tendency_x(s);
    } else {
        set_halo_z(s, now);
        flux_z(s, now, dt);
        tendency_z(s, now);
    }
    update(s, start, out, dt);
}

/* Advance q by `steps` of dt, x first in even ones. Returns 0, or 1 without memory. */
int euler2d_run(double *q, const double *column, const double *faces, const double *ghost, int nx, int nz, double dx,
                double dz, double beta, double dt, int steps) {
    Slab s = {nx, nz, dx, dz, beta, column, faces, ghost, NULL, NULL};
    double *other = calloc((size_t)FIELDS * (nz + 4) * (nx + 4), sizeof(double));
    s.flux = calloc((size_t)FIELDS * (nz + 1) * (nx + 1), sizeof(double));
    s.tendency = calloc((size_t)FIELDS * nz * nx, sizeof(double));
    const int failed = !other || !s.flux || !s.tendency;
    for (int step = 0; !failed && step < steps; step++)
        for (int sweep = 0; sweep < 2; sweep++) {
            const int direction = (step + sweep) % 2;
            stage(&s, direction, q, q, other, dt / 3);
            stage(&s, direction, q, other, other, dt / 2);
            stage(&s, direction, q, other, q, dt);
        }
    free(other);
    free(s.flux);
    free(s.tendency);
    return failed;
}
