# The CPU kernels: each source in src/tensor/cpu, except the device itself, is
# compiled once for each instruction set; bf16_amx.c is compiled for AMX alone.
# Sets LK_KERNEL_SOURCES, LK_AMX_SOURCE and LK_KERNEL_OBJECTS.
set(LK_KERNELS ALL CACHE STRING "Builds of the CPU kernels, as in avx512;avx2; ALL: all of the processor's family")
file(GLOB LK_KERNEL_SOURCES CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/src/tensor/cpu/*.c)
set(LK_AMX_SOURCE ${CMAKE_CURRENT_SOURCE_DIR}/src/tensor/cpu/bf16_amx.c)
list(REMOVE_ITEM LK_KERNEL_SOURCES
  ${LK_AMX_SOURCE}
  ${CMAKE_CURRENT_SOURCE_DIR}/src/tensor/cpu/builds.c
  ${CMAKE_CURRENT_SOURCE_DIR}/src/tensor/cpu/device.c)

include(CheckCCompilerFlag)
set(LK_KERNEL_OBJECTS)
# With sanitizers the kernels are as fast at -O2 as at -O3, and take up to twice as long at -O1. gcse takes a third of
# the time to compile the functions with all their checks, and saves nothing. Checks of every pointer take another
# third; AddressSanitizer sees wrong pointers where they are used.
set(LK_KERNEL_OPTIONS)
if(LK_SANITIZE)
  set(LK_KERNEL_OPTIONS -O2 $<$<C_COMPILER_ID:GNU>:-fno-gcse>
    -fno-sanitize=null,alignment,pointer-overflow,object-size)
endif()
function(lk_kernel_objects isa sources)
  add_library(kernels_${isa} OBJECT ${sources})
  set_target_properties(kernels_${isa} PROPERTIES C_VISIBILITY_PRESET hidden)
  target_include_directories(kernels_${isa} PRIVATE
    ${CMAKE_CURRENT_SOURCE_DIR}/include ${CMAKE_CURRENT_SOURCE_DIR}/src)
  target_compile_options(kernels_${isa} PRIVATE ${LK_KERNEL_OPTIONS} ${ARGN})
  set(LK_KERNEL_OBJECTS ${LK_KERNEL_OBJECTS} $<TARGET_OBJECTS:kernels_${isa}> PARENT_SCOPE)
endfunction()
# builds.c lists the builds that are compiled: LK_HAVE_AVX2 and so on.
function(lk_kernel_listed isa sources)
  string(TOUPPER ${isa} upper)
  set_property(SOURCE ${sources} APPEND PROPERTY COMPILE_DEFINITIONS LK_HAVE_${upper})
endfunction()
macro(lk_kernel_build isa)
  if(LK_KERNELS STREQUAL ALL OR "${isa}" IN_LIST LK_KERNELS)
    lk_kernel_objects(${isa} "${LK_KERNEL_SOURCES}" ${ARGN})
    string(TOUPPER ${isa} upper)
    target_compile_definitions(kernels_${isa} PRIVATE LK_ISA=${isa} LK_VEC_${upper})
    lk_kernel_listed(${isa} src/tensor/cpu/builds.c)
  endif()
endmacro()

if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  lk_kernel_build(avx512 -mavx2 -mfma -mavx512f -mavx512bw -mavx512dq -mavx512vl -mprefer-vector-width=512)
  lk_kernel_build(avx2 -mavx2 -mfma)
  lk_kernel_build(scalar -mfma)
  # Linux alone grants AMX's registers by arch_prctl.
  check_c_compiler_flag("-mamx-tile -mamx-bf16" LK_HAS_AMX)
  if(LK_HAS_AMX AND CMAKE_SYSTEM_NAME STREQUAL "Linux" AND TARGET kernels_avx512)
    lk_kernel_objects(amx ${LK_AMX_SOURCE} -mamx-tile -mamx-bf16)
    lk_kernel_listed(amx "src/tensor/cpu/builds.c;src/tensor/cpu/table.c")
  endif()
elseif(CMAKE_SYSTEM_PROCESSOR MATCHES "aarch64|arm64")
  # gcc's first scheduling pass moves values between registers in the matrix kernels, which takes an eighth of their time.
  check_c_compiler_flag(-fno-schedule-insns LK_HAS_NO_SCHEDULE_INSNS)
  lk_kernel_build(neon $<$<BOOL:${LK_HAS_NO_SCHEDULE_INSNS}>:-fno-schedule-insns>)
  lk_kernel_build(scalar)
else()
  lk_kernel_build(scalar)
endif()
if(NOT LK_KERNEL_OBJECTS)
  message(FATAL_ERROR "LK_KERNELS=${LK_KERNELS}: none of these is a build for ${CMAKE_SYSTEM_PROCESSOR}")
endif()
