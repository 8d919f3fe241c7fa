/* The same steps without lanes. */

#define NAME "population_step_alone"
#include "population_step.c"
