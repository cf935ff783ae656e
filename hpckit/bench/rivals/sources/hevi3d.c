/* The split dynamics of the box as a modeler would write it in plain C: one loop nest for each operation, pow for the
 * pressure, the tridiagonal system column by column.
 *
 * Fields [5][nz][ny + 2 H][nx + 2 H]: rho', rho u, rho v, rho w, (rho theta)' of dry air on Arakawa's C grid, periodic in
 * x and y. Equations: kernels/euler/hevi/reference.py, without the Coriolis force. */
#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

enum { RHO, RHO_U, RHO_V, RHO_W, RHO_THETA, FIELDS };
enum { H = 4 }; /* cells of halo: three of an upwind face, one of a mean */
enum { U, V, W, THETA, PRESSURE, STIFFNESS, WORKS };

static const double GAMMA = 1.40027894002789400278940027894;
static const double GRAVITY = 9.8;

typedef struct {
    int nx, ny, nz;
    double dx, dy, implicit, damping;
    const double *column;                             /* [3][nz]: rho, rho theta, pressure of the base state */
    const double *per_cell, *per_face, *below, *above; /* [nz + 1] each: reference.py, `levels` */
    const double *weights;                            /* [3][6]: of faces by order */
    double *start, *slow, *fast, *work, *pressure;
    double *mass[3], *flux[3]; /* at the low faces of the cells of a quantity; [nz + 1] levels */
    double *new_rho, *new_heat, *new_pressure;
    double *factor, *value; /* of a column */
} Box;

static size_t plane(const Box *s) { return (size_t)(s->ny + 2 * H) * (s->nx + 2 * H); }

static size_t cell(const Box *s, int k, int j, int i) {
    return ((size_t)k * (s->ny + 2 * H) + j) * (s->nx + 2 * H) + i;
}

static size_t volume(const Box *s) { return s->nz * plane(s); }

/* Periodic halos of so many fields. */
static void fill_halo(const Box *s, double *q, int fields) {
    const int nx = s->nx, ny = s->ny;
    for (int k = 0; k < fields * s->nz; k++)
        for (int j = H; j < ny + H; j++)
            for (int i = 0; i < H; i++) {
                q[cell(s, k, j, i)] = q[cell(s, k, j, nx + i)];
                q[cell(s, k, j, nx + H + i)] = q[cell(s, k, j, H + i)];
            }
    for (int k = 0; k < fields * s->nz; k++)
        for (int j = 0; j < H; j++)
            for (int i = 0; i < nx + 2 * H; i++) {
                q[cell(s, k, j, i)] = q[cell(s, k, ny + j, i)];
                q[cell(s, k, ny + H + j, i)] = q[cell(s, k, H + j, i)];
            }
}

/* Velocities at faces, theta, pressure and its derivative. */
static void prepare(const Box *s, const double *state) {
    const size_t n = volume(s), row = s->nx + 2 * H;
    const double *rho = state;
    for (int k = 0; k < s->nz; k++)
        for (int j = 1; j < s->ny + 2 * H; j++)
            for (int i = 1; i < s->nx + 2 * H; i++) {
                const size_t c = cell(s, k, j, i);
                const double base = s->column[k], here = rho[c] + base;
                const double base_heat = s->column[s->nz + k], base_p = s->column[2 * s->nz + k];
                const double heat = state[RHO_THETA * n + c];
                s->work[U * n + c] = state[RHO_U * n + c] / (0.5 * (rho[c - 1] + base + here));
                s->work[V * n + c] = state[RHO_V * n + c] / (0.5 * (rho[c - row] + base + here));
                s->work[W * n + c] = 0;
                if (k > 0) {
                    const double under = rho[c - plane(s)] + s->column[k - 1];
                    s->work[W * n + c] = state[RHO_W * n + c] / (s->below[k] * under + s->above[k] * here);
                }
                s->work[THETA * n + c] = (heat + base_heat) / here;
                const double excess = base_p * (pow(1 + heat / base_heat, GAMMA) - 1);
                s->work[PRESSURE * n + c] = excess;
                s->work[STIFFNESS * n + c] = GAMMA * (base_p + excess) / (heat + base_heat);
            }
}

/* Mass fluxes through the low faces of the cells of a quantity, from means of the momenta over the step to a neighbor.
 * Of rho u and rho v there is a cell more than of others, hence two faces. */
static void mass_fluxes(const Box *s, const double *state, size_t step) {
    const size_t n = volume(s);
    for (int direction = 0; direction < 3; direction++) {
        const double *m = state + (RHO_U + direction) * n;
        for (int k = 0; k < s->nz; k++)
            for (int j = H; j <= s->ny + H + 1; j++)
                for (int i = H; i <= s->nx + H + 1; i++) {
                    const size_t c = cell(s, k, j, i);
                    s->mass[direction][c] = 0.5 * (m[c - step] + m[c]);
                }
    }
}

/* The same for rho w, whose cells reach from the middle of a level to that of the next. */
static void mass_fluxes_w(const Box *s, const double *state) {
    const size_t n = volume(s), up = plane(s);
    for (int direction = 0; direction < 2; direction++) {
        const double *m = state + (RHO_U + direction) * n;
        for (int k = 1; k < s->nz; k++)
            for (int j = H; j <= s->ny + H; j++)
                for (int i = H; i <= s->nx + H; i++) {
                    const size_t c = cell(s, k, j, i);
                    s->mass[direction][c] = s->below[k] * m[c - up] + s->above[k] * m[c];
                }
    }
    const double *m = state + RHO_W * n;
    for (int k = 1; k <= s->nz; k++)
        for (int j = H; j < s->ny + H; j++)
            for (int i = H; i < s->nx + H; i++) {
                const size_t c = cell(s, k, j, i);
                s->mass[2][c] = 0.5 * (m[c - up] + (k < s->nz ? m[c] : 0));
            }
}

static double face(double mass, const double q[6], const double *row) {
    const double even = row[0] * (q[3] + q[2]) + row[1] * (q[4] + q[1]) + row[2] * (q[5] + q[0]);
    const double odd = row[3] * (q[3] - q[2]) + row[4] * (q[4] - q[1]) + row[5] * (q[5] - q[0]);
    return mass * even - fabs(mass) * odd;
}

static void carry_horizontal(const Box *s, int direction, const double *q) {
    const ptrdiff_t step = direction ? s->nx + 2 * H : 1;
    const double *row = s->weights + 12;
    for (int k = 0; k < s->nz; k++)
        for (int j = H; j <= s->ny + H + 1; j++)
            for (int i = H; i <= s->nx + H + 1; i++) {
                const double *a = q + cell(s, k, j, i);
                const double six[6] = {a[-3 * step], a[-2 * step], a[-step], a[0], a[step], a[2 * step]};
                s->flux[direction][cell(s, k, j, i)] = face(s->mass[direction][cell(s, k, j, i)], six, row);
            }
}

static int least(int a, int b) { return a < b ? a : b; }

static int clamp(int k, int top) { return k < 0 ? 0 : least(k, top); }

static void carry_up(const Box *s, const double *q) {
    const int nz = s->nz;
    for (int k = 0; k <= nz; k++)
        for (int j = H; j <= s->ny + H; j++)
            for (int i = H; i <= s->nx + H; i++) {
                const size_t c = cell(s, k, j, i);
                if (k == 0 || k == nz) {
                    s->flux[2][c] = 0;
                    continue;
                }
                double six[6];
                for (int at = 0; at < 6; at++) six[at] = q[cell(s, clamp(k + at - 3, nz - 1), j, i)];
                s->flux[2][c] = face(s->mass[2][c], six, s->weights + 6 * least(least(k - 1, nz - 1 - k), 2));
            }
}

/* Of w through the middle of the level below; at the lid w is 0. */
static void carry_up_w(const Box *s, const double *q) {
    const int nz = s->nz;
    for (int k = 1; k <= nz; k++)
        for (int j = H; j < s->ny + H; j++)
            for (int i = H; i < s->nx + H; i++) {
                double six[6];
                for (int at = 0; at < 6; at++) {
                    const int from = k + at - 3;
                    six[at] = from < nz ? q[cell(s, clamp(from, nz), j, i)] : 0;
                }
                const double *row = s->weights + 6 * least(least(k - 1, nz - k), 2);
                s->flux[2][cell(s, k, j, i)] = face(s->mass[2][cell(s, k, j, i)], six, row);
            }
}

/* The tendency of a quantity by what its faces carry. */
static void diverge(const Box *s, int beyond_x, int beyond_y, int lowest, const double *per_height, double *out) {
    const size_t row = s->nx + 2 * H;
    for (int k = lowest; k < s->nz; k++)
        for (int j = H; j < s->ny + H + beyond_y; j++)
            for (int i = H; i < s->nx + H + beyond_x; i++) {
                const size_t c = cell(s, k, j, i);
                out[c] = (s->flux[0][c] - s->flux[0][c + 1]) / s->dx + (s->flux[1][c] - s->flux[1][c + row]) / s->dy +
                         (s->flux[2][c] - s->flux[2][c + plane(s)]) * per_height[k];
            }
}

static void tendencies(const Box *s, const double *state) {
    const size_t n = volume(s), row = s->nx + 2 * H, up = plane(s);
    const double *p = s->work + PRESSURE * n, *rho = state;
    double *slow = s->slow;
    mass_fluxes(s, state, 0);
    for (int direction = 0; direction < 2; direction++) carry_horizontal(s, direction, s->work + THETA * n);
    carry_up(s, s->work + THETA * n);
    diverge(s, 0, 0, 0, s->per_cell, slow + RHO_THETA * n);
    for (int k = 0; k < s->nz; k++)
        for (int j = H; j < s->ny + H; j++)
            for (int i = H; i < s->nx + H; i++) {
                const size_t c = cell(s, k, j, i);
                const double top = k + 1 < s->nz ? s->mass[2][c + up] : 0;
                slow[c] = (s->mass[0][c] - s->mass[0][c + 1]) / s->dx + (s->mass[1][c] - s->mass[1][c + row]) / s->dy +
                          (s->mass[2][c] - top) * s->per_cell[k];
            }
    for (int axis = 0; axis < 2; axis++) {
        const double *speed = s->work + (U + axis) * n;
        const size_t step = axis ? row : 1;
        const double width = axis ? s->dy : s->dx;
        mass_fluxes(s, state, step);
        for (int direction = 0; direction < 2; direction++) carry_horizontal(s, direction, speed);
        carry_up(s, speed);
        double *out = slow + (RHO_U + axis) * n;
        diverge(s, axis == 0, axis == 1, 0, s->per_cell, out);
        for (int k = 0; k < s->nz; k++)
            for (int j = H; j < s->ny + H + axis; j++)
                for (int i = H; i < s->nx + H + 1 - axis; i++) {
                    const size_t c = cell(s, k, j, i);
                    out[c] -= (p[c] - p[c - step]) / width;
                }
    }
    mass_fluxes_w(s, state);
    for (int direction = 0; direction < 2; direction++) carry_horizontal(s, direction, s->work + W * n);
    carry_up_w(s, s->work + W * n);
    diverge(s, 0, 0, 1, s->per_face, slow + RHO_W * n);
    for (int k = 1; k < s->nz; k++)
        for (int j = H; j < s->ny + H; j++)
            for (int i = H; i < s->nx + H; i++) {
                const size_t c = cell(s, k, j, i);
                const double weight = GRAVITY * (s->below[k] * rho[c - up] + s->above[k] * rho[c]);
                slow[RHO_W * n + c] -= (p[c] - p[c - up]) * s->per_face[k] + weight;
            }
}

static void begin(const Box *s, const double *state) {
    const size_t n = volume(s);
    for (size_t c = 0; c < FIELDS * n; c++) s->fast[c] = s->start[c] - state[c];
    for (size_t c = 0; c < n; c++) s->pressure[c] = s->work[STIFFNESS * n + c] * s->fast[RHO_THETA * n + c];
}

/* Theta at the face below a level. */
static double theta_at(const Box *s, const double *theta, int k, int j, int i) {
    const int top = s->nz - 1;
    return s->below[k] * theta[cell(s, clamp(k - 1, top), j, i)] + s->above[k] * theta[cell(s, clamp(k, top), j, i)];
}

static void solve(const Box *s, double dt, int j, int i) {
    const size_t n = volume(s), up = plane(s);
    const int nz = s->nz;
    const double implicit = s->implicit, explicit = 1 - implicit, size = dt * implicit * dt * implicit;
    const double *theta = s->work + THETA * n, *stiff = s->work + STIFFNESS * n;
    double *rho = s->fast, *w = s->fast + RHO_W * n, *heat = s->fast + RHO_THETA * n;
    s->factor[0] = s->value[0] = s->value[nz] = 0;
    for (int k = 1; k < nz; k++) {
        const size_t c = cell(s, k, j, i), b = c - up;
        const double tension = s->per_face[k], low = s->per_cell[k - 1], high = s->per_cell[k];
        const double lower = -size * (tension * stiff[b] * low * theta_at(s, theta, k - 1, j, i) - GRAVITY * s->below[k] * low);
        const double upper =
            -size * (tension * stiff[c] * high * theta_at(s, theta, k + 1, j, i) + GRAVITY * s->above[k] * high);
        const double diagonal = 1 + size * (tension * theta_at(s, theta, k, j, i) * (stiff[c] * high + stiff[b] * low) +
                                            GRAVITY * (s->above[k] * high - s->below[k] * low));
        const double mixed_low = implicit * s->new_rho[b] + explicit * rho[b];
        const double mixed = implicit * s->new_rho[c] + explicit * rho[c];
        const double weight = GRAVITY * (s->below[k] * mixed_low + s->above[k] * mixed);
        const double gradient = tension * (s->new_pressure[c] - s->new_pressure[b]);
        const double right = w[c] + dt * (s->slow[RHO_W * n + c] - gradient - weight);
        const double pivot = 1 / (diagonal - lower * s->factor[k - 1]);
        s->factor[k] = upper * pivot;
        s->value[k] = (right - lower * s->value[k - 1]) * pivot;
    }
    for (int k = nz - 1; k > 0; k--) s->value[k] -= s->factor[k] * s->value[k + 1];
    for (int k = 0; k < nz; k++) {
        const size_t c = cell(s, k, j, i);
        const double low = s->value[k], high = s->value[k + 1];
        rho[c] = s->new_rho[c] - dt * implicit * ((high - low) * s->per_cell[k]);
        const double carry = theta_at(s, theta, k + 1, j, i) * high - theta_at(s, theta, k, j, i) * low;
        const double new = s->new_heat[c] - dt * implicit * (carry * s->per_cell[k]);
        s->pressure[c] = stiff[c] * (new + s->damping * (new - heat[c]));
        heat[c] = new;
        w[c] = low;
    }
}

static void substep(const Box *s, double dt) {
    const size_t n = volume(s), row = s->nx + 2 * H, up = plane(s);
    const double explicit = 1 - s->implicit;
    const double *theta = s->work + THETA * n, *stiff = s->work + STIFFNESS * n, *p = s->pressure;
    double *rho = s->fast, *u = s->fast + RHO_U * n, *v = s->fast + RHO_V * n, *w = s->fast + RHO_W * n;
    double *heat = s->fast + RHO_THETA * n;
    for (int k = 0; k < s->nz; k++)
        for (int j = H; j < s->ny + H; j++)
            for (int i = H; i <= s->nx + H; i++) {
                const size_t c = cell(s, k, j, i);
                u[c] += dt * (s->slow[RHO_U * n + c] - (p[c] - p[c - 1]) / s->dx);
            }
    for (int k = 0; k < s->nz; k++)
        for (int j = H; j <= s->ny + H; j++)
            for (int i = H; i < s->nx + H; i++) {
                const size_t c = cell(s, k, j, i);
                v[c] += dt * (s->slow[RHO_V * n + c] - (p[c] - p[c - row]) / s->dy);
            }
    for (int k = 0; k < s->nz; k++)
        for (int j = H; j < s->ny + H; j++)
            for (int i = H; i < s->nx + H; i++) {
                const size_t c = cell(s, k, j, i);
                const double high = k + 1 < s->nz ? w[c + up] : 0;
                const double div = (u[c + 1] - u[c]) / s->dx + (v[c + row] - v[c]) / s->dy;
                s->new_rho[c] = rho[c] + dt * (s->slow[c] - div - explicit * ((high - w[c]) * s->per_cell[k]));
                const double x = u[c + 1] * (0.5 * (theta[c] + theta[c + 1])) - u[c] * (0.5 * (theta[c - 1] + theta[c]));
                const double y =
                    v[c + row] * (0.5 * (theta[c] + theta[c + row])) - v[c] * (0.5 * (theta[c - row] + theta[c]));
                const double z = theta_at(s, theta, k + 1, j, i) * high - theta_at(s, theta, k, j, i) * w[c];
                const double carry = x / s->dx + y / s->dy + explicit * (z * s->per_cell[k]);
                s->new_heat[c] = heat[c] + dt * (s->slow[RHO_THETA * n + c] - carry);
                s->new_pressure[c] = stiff[c] * (s->implicit * s->new_heat[c] + explicit * heat[c]);
            }
    for (int j = H; j < s->ny + H; j++)
        for (int i = H; i < s->nx + H; i++) solve(s, dt, j, i);
}

static void finish(const Box *s, double *state) {
    for (int k = 0; k < FIELDS * s->nz; k++)
        for (int j = H; j < s->ny + H; j++)
            for (int i = H; i < s->nx + H; i++) state[cell(s, k, j, i)] += s->fast[cell(s, k, j, i)];
}

/* Advance `state` by so many steps of dt; counts: acoustic substeps of the three stages. 1 where memory lacks. */
int hevi3d_run(double *state, const double *column, const double *levels, const double *weights, int nx, int ny, int nz,
               double dx, double dy, double implicit, double damping, double dt, const int *counts, int steps) {
    Box s = {nx, ny, nz, dx, dy, implicit, damping, column, levels, levels + nz + 1, levels + 2 * (nz + 1),
             levels + 3 * (nz + 1), weights, 0, 0, 0, 0, 0, {0}, {0}, 0, 0, 0, 0, 0};
    const size_t n = volume(&s), high = n + plane(&s);
    double *memory = calloc((3 * FIELDS + WORKS + 4) * n + 6 * high + 2 * (nz + 1), sizeof(double)), *next = memory;
    if (memory == NULL) return 1;
    double **arrays[] = {&s.start, &s.slow, &s.fast, &s.work, &s.pressure, &s.new_rho, &s.new_heat, &s.new_pressure};
    const size_t fields[] = {FIELDS, FIELDS, FIELDS, WORKS, 1, 1, 1, 1};
    for (int a = 0; a < 8; a++) {
        *arrays[a] = next;
        next += fields[a] * n;
    }
    for (int direction = 0; direction < 3; direction++) {
        s.mass[direction] = next;
        s.flux[direction] = next + high;
        next += 2 * high;
    }
    s.factor = next;
    s.value = next + nz + 1;
    for (int step = 0; step < steps; step++) {
        fill_halo(&s, state, FIELDS);
        memcpy(s.start, state, FIELDS * n * sizeof(double));
        for (int stage = 0; stage < 3; stage++) {
            const double share = stage == 0 ? 1.0 / 3 : stage == 1 ? 0.5 : 1;
            if (stage) fill_halo(&s, state, FIELDS);
            prepare(&s, state);
            tendencies(&s, state);
            begin(&s, state);
            for (int sound = 0; sound < counts[stage]; sound++) {
                if (sound) fill_halo(&s, s.pressure, 1);
                substep(&s, dt * share / counts[stage]);
            }
            finish(&s, state);
        }
    }
    free(memory);
    return 0;
}
