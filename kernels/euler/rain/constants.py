"""Constants of Kessler's warm rain as in the reference program of DCMIP2016 (Klemp, Skamarock and Park 2015)."""

VAPOR, CLOUD, RAIN = range(3)  # of the water that a parcel holds, in this order
HEAT = 2.5e6  # J/kg, of condensation
WARMED = 1003.0  # J/kg/K, what that heat warms: dry air at constant pressure
F2X = 17.27
F5 = 237.3 * F2X * HEAT / WARMED
WATER_DENSITY = 1000.0  # kg/m3
RV = 461.0  # J/kg/K, gas constant of vapor
