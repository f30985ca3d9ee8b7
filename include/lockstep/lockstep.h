/* lockstep.h - all public headers. */
#ifndef LOCKSTEP_H
#define LOCKSTEP_H

#include <lockstep/checkpoint.h>
#include <lockstep/data.h>
#include <lockstep/engine.h>
#include <lockstep/graph.h>
#include <lockstep/group.h>
#include <lockstep/launch.h>
#include <lockstep/op.h>
#include <lockstep/optim.h>
#include <lockstep/state.h>
#include <lockstep/status.h>
#include <lockstep/train.h>
#include <lockstep/version.h>

#endif
