/* What population_step.c does, for one run alone: without lanes, which would be empty but for one. */

#define ALONE
#define population_step population_step_alone
#include "population_step.c"
