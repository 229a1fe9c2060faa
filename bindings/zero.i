/* zero.i - the one source of the bindings: what SWIG reads besides zero.h.
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * `swig -python` makes the Python module libzero.raw from it; `swig -xml` the tree from which
 * bindings/generate.py writes the raw and the checked floors of Julia and Rust, the checked floor
 * of Python and zero_loader.h.
 *
 * zero:own says which function ends what a function returns.
 */
%module(package="libzero") raw

#define ZERO_API
%include <stdint.i>

%{
#include <zero.h>
%}

%feature("zero:own", "zero_config_destroy") zero_config_create;
%feature("zero:own", "zero_config_destroy") zero_config_load_file;
%feature("zero:own", "zero_config_destroy") zero_config_load_text;
%feature("zero:own", "zero_model_destroy") zero_model_create;
%feature("zero:own", "zero_model_destroy") zero_model_load;
%feature("zero:own", "zero_plan_destroy") zero_plan_create;
%feature("zero:own", "zero_comm_destroy") zero_comm_create_self;
%feature("zero:own", "zero_comm_destroy") zero_comm_create_local;
%feature("zero:own", "zero_comm_destroy") zero_comm_create_from_config;
%feature("zero:own", "zero_comm_destroy") zero_comm_create_user;
%feature("zero:own", "zero_runtime_destroy") zero_init;
%feature("zero:own", "zero_checkpoint_destroy") zero_checkpoint_open;

#ifdef SWIGPYTHON
%include "python.i"
#endif

%include <zero.h>
