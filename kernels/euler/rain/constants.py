"""Constants of Kessler's warm rain as in the reference program of DCMIP2016 (Klemp, Skamarock and Park 2015)."""

VAPOR, CLOUD, RAIN = range(3)  # of the water that a parcel holds, in this order
HEAT = 2.5e6  # J/kg, of condensation
WARMED = 1003.0  # J/kg/K, what that heat warms: dry air at constant pressure
F2X = 17.27
F5 = 237.3 * F2X * HEAT / WARMED
WATER_DENSITY = 1000.0  # kg/m3
RV = 461.0  # J/kg/K, gas constant of vapor

# Of the complete equations (Bryan and Fritsch 2002), saturation after Bolton (1980)
CVV = 1424.0  # J/kg/K, heat capacity of vapor at constant volume
CL = 4186.0  # J/kg/K, of liquid water
FREEZING = 273.15  # K
LATENT = 2.5e6 + (CL - CVV - RV) * FREEZING  # J/kg: what liquid has less than vapor, of heat, both at 0 K
BOLTON, BOLTON_SLOPE, BOLTON_SHIFT = 611.2, 17.67, 29.65  # Pa, 1, K
