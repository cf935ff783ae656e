"""Operations on particles: sorting, forces, integration, observables."""
