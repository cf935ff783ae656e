/* The scheme of the box as a modeler would write it in plain C: one loop nest for each operation, pow for the pressure.
 *
 * Fields [5][nz + 4][ny + 4][nx + 4] with two cells of halo: rho', rho u, rho v, rho w, (rho theta)'. Equations and
 * fluxes: kernels/euler/box/reference.py, without the Coriolis force. */
#include <math.h>
#include <stddef.h>
#include <stdlib.h>

enum { RHO, RHO_U, RHO_V, RHO_W, RHO_THETA, FIELDS };
enum { X, Y, Z };

static const double C0 = 27.5629410929725921310572974482;
static const double GAMMA = 1.40027894002789400278940027894;
static const double GRAVITY = 9.8;

typedef struct {
    int n[3]; /* cells in x, y, z */
    double spacing[3], beta;
    const double *column; /* [3][nz]: rho, rho theta, pressure at cells */
    const double *faces;  /* [5][nz + 1]: the same at interfaces, and third differences of the base's rho u, rho v */
    const double *ghost;  /* [4]: rho of the rows outside the walls over that of the row inside */
    double *flux, *tendency;
} Box;

static size_t cell(const Box *s, int field, int k, int j, int i) {
    return (((size_t)field * (s->n[Z] + 4) + k) * (s->n[Y] + 4) + j) * (s->n[X] + 4) + i;
}

/* The interface on the low side of a cell, and one more in each direction. */
static size_t face(const Box *s, int field, int k, int j, int i) {
    return (((size_t)field * (s->n[Z] + 1) + k) * (s->n[Y] + 1) + j) * (s->n[X] + 1) + i;
}

static void set_halo_x(const Box *s, double *q) {
    const int n = s->n[X];
    for (int field = 0; field < FIELDS; field++)
        for (int k = 2; k < s->n[Z] + 2; k++)
            for (int j = 2; j < s->n[Y] + 2; j++)
                for (int i = 0; i < 2; i++) {
                    q[cell(s, field, k, j, i)] = q[cell(s, field, k, j, n + i)];
                    q[cell(s, field, k, j, n + 2 + i)] = q[cell(s, field, k, j, 2 + i)];
                }
}

static void set_halo_y(const Box *s, double *q) {
    const int n = s->n[Y];
    for (int field = 0; field < FIELDS; field++)
        for (int k = 2; k < s->n[Z] + 2; k++)
            for (int j = 0; j < 2; j++)
                for (int i = 2; i < s->n[X] + 2; i++) {
                    q[cell(s, field, k, j, i)] = q[cell(s, field, k, n + j, i)];
                    q[cell(s, field, k, n + 2 + j, i)] = q[cell(s, field, k, 2 + j, i)];
                }
}

static void set_halo_z(const Box *s, double *q) {
    const int nz = s->n[Z];
    const int outside[4] = {0, 1, nz + 2, nz + 3}, edge[4] = {2, 2, nz + 1, nz + 1};
    for (int field = 0; field < FIELDS; field++)
        for (int row = 0; row < 4; row++)
            for (int j = 2; j < s->n[Y] + 2; j++)
                for (int i = 2; i < s->n[X] + 2; i++) {
                    double value = q[cell(s, field, edge[row], j, i)];
                    if (field == RHO_W) value = 0.0;
                    if (field == RHO_U || field == RHO_V) value *= s->ghost[row];
                    q[cell(s, field, outside[row], j, i)] = value;
                }
}

/* Fluxes through the interfaces across a horizontal direction. */
static void flux_horizontal(const Box *s, int direction, const double *q, double dt) {
    const double nu = s->beta * s->spacing[direction] / (16 * dt);
    const size_t step = direction == X ? 1 : s->n[X] + 4;
    const int nz = s->n[Z], rows = s->n[Y] + (direction == Y), cells = s->n[X] + (direction == X);
    for (int k = 0; k < nz; k++)
        for (int j = 0; j < rows; j++)
            for (int i = 0; i < cells; i++) {
                double value[FIELDS], third[FIELDS];
                for (int field = 0; field < FIELDS; field++) {
                    const double *at = q + cell(s, field, k + 2, j + 2, i + 2) - 2 * step;
                    value[field] = -at[0] / 12 + 7 * at[step] / 12 + 7 * at[2 * step] / 12 - at[3 * step] / 12;
                    third[field] = -at[0] + 3 * at[step] - 3 * at[2 * step] + at[3 * step];
                }
                const double rho = value[RHO] + s->column[k];
                const double u = value[RHO_U] / rho, v = value[RHO_V] / rho, w = value[RHO_W] / rho;
                const double theta = (value[RHO_THETA] + s->column[nz + k]) / rho;
                const double p = C0 * pow(rho * theta, GAMMA) - s->column[2 * nz + k];
                const double across = direction == X ? u : v;
                s->flux[face(s, RHO, k, j, i)] = rho * across + nu * third[RHO];
                s->flux[face(s, RHO_U, k, j, i)] = rho * across * u + (direction == X ? p : 0) + nu * third[RHO_U];
                s->flux[face(s, RHO_V, k, j, i)] = rho * across * v + (direction == Y ? p : 0) + nu * third[RHO_V];
                s->flux[face(s, RHO_W, k, j, i)] = rho * across * w + nu * third[RHO_W];
                s->flux[face(s, RHO_THETA, k, j, i)] = rho * across * theta + nu * third[RHO_THETA];
            }
}

static void flux_z(const Box *s, const double *q, double dt) {
    const double nu = s->beta * s->spacing[Z] / (16 * dt);
    const size_t up = (size_t)(s->n[Y] + 4) * (s->n[X] + 4);
    const int levels = s->n[Z] + 1;
    for (int k = 0; k < levels; k++)
        for (int j = 0; j < s->n[Y]; j++)
            for (int i = 0; i < s->n[X]; i++) {
                double value[FIELDS], third[FIELDS];
                for (int field = 0; field < FIELDS; field++) {
                    const double *at = q + cell(s, field, k, j + 2, i + 2);
                    value[field] = -at[0] / 12 + 7 * at[up] / 12 + 7 * at[2 * up] / 12 - at[3 * up] / 12;
                    third[field] = -at[0] + 3 * at[up] - 3 * at[2 * up] + at[3 * up];
                }
                const double rho = value[RHO] + s->faces[k];
                const double u = value[RHO_U] / rho, v = value[RHO_V] / rho;
                double w = value[RHO_W] / rho;
                const double theta = (value[RHO_THETA] + s->faces[levels + k]) / rho;
                const double p = C0 * pow(rho * theta, GAMMA) - s->faces[2 * levels + k];
                third[RHO_U] -= s->faces[3 * levels + k];
                third[RHO_V] -= s->faces[4 * levels + k];
                if (k == 0 || k == levels - 1) {
                    w = 0;
                    third[RHO] = 0;
                }
                s->flux[face(s, RHO, k, j, i)] = rho * w + nu * third[RHO];
                s->flux[face(s, RHO_U, k, j, i)] = rho * w * u + nu * third[RHO_U];
                s->flux[face(s, RHO_V, k, j, i)] = rho * w * v + nu * third[RHO_V];
                s->flux[face(s, RHO_W, k, j, i)] = rho * w * w + p + nu * third[RHO_W];
                s->flux[face(s, RHO_THETA, k, j, i)] = rho * w * theta + nu * third[RHO_THETA];
            }
}

static void tendency(const Box *s, int direction, const double *q) {
    const int dk = direction == Z, dj = direction == Y, di = direction == X;
    for (int field = 0; field < FIELDS; field++)
        for (int k = 0; k < s->n[Z]; k++)
            for (int j = 0; j < s->n[Y]; j++)
                for (int i = 0; i < s->n[X]; i++) {
                    const double out = s->flux[face(s, field, k + dk, j + dj, i + di)];
                    double change = -(out - s->flux[face(s, field, k, j, i)]) / s->spacing[direction];
                    if (direction == Z && field == RHO_W) change -= GRAVITY * q[cell(s, RHO, k + 2, j + 2, i + 2)];
                    s->tendency[face(s, field, k, j, i)] = change;
                }
}

static void update(const Box *s, const double *start, double *out, double dt) {
    for (int field = 0; field < FIELDS; field++)
        for (int k = 0; k < s->n[Z]; k++)
            for (int j = 0; j < s->n[Y]; j++)
                for (int i = 0; i < s->n[X]; i++)
                    out[cell(s, field, k + 2, j + 2, i + 2)] =
                        start[cell(s, field, k + 2, j + 2, i + 2)] + dt * s->tendency[face(s, field, k, j, i)];
}

static void stage(const Box *s, int direction, const double *start, double *now, double *out, double dt) {
    if (direction == X) set_halo_x(s, now);
    if (direction == Y) set_halo_y(s, now);
    if (direction == Z) set_halo_z(s, now);
    if (direction == Z)
        flux_z(s, now, dt);
    else
        flux_horizontal(s, direction, now, dt);
    tendency(s, direction, now);
    update(s, start, out, dt);
}

/* Advance q by `steps` of dt, in the order x, y, z in even ones. Returns 0, or 1 without memory. */
int euler3d_run(double *q, const double *column, const double *faces, const double *ghost, int nx, int ny, int nz,
                double dx, double dy, double dz, double beta, double dt, int steps) {
    Box s = {{nx, ny, nz}, {dx, dy, dz}, beta, column, faces, ghost, NULL, NULL};
    const size_t points = (size_t)FIELDS * (nz + 1) * (ny + 1) * (nx + 1);
    double *other = calloc((size_t)FIELDS * (nz + 4) * (ny + 4) * (nx + 4), sizeof(double));
    s.flux = calloc(points, sizeof(double));
    s.tendency = calloc(points, sizeof(double));
    const int failed = !other || !s.flux || !s.tendency;
    for (int step = 0; !failed && step < steps; step++)
        for (int sweep = 0; sweep < 3; sweep++) {
            const int direction = step % 2 == 0 ? sweep : 2 - sweep;
            stage(&s, direction, q, q, other, dt / 3);
            stage(&s, direction, q, other, other, dt / 2);
            stage(&s, direction, q, other, q, dt);
        }
    free(other);
    free(s.flux);
    free(s.tendency);
    return failed;
}
