# The CPU kernels: each source in src/tensor/cpu, except the device itself, is
# compiled once for each instruction set. Sets LK_KERNEL_SOURCES and
# LK_KERNEL_OBJECTS.
file(GLOB LK_KERNEL_SOURCES CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/src/tensor/cpu/*.c)
list(REMOVE_ITEM LK_KERNEL_SOURCES
  ${CMAKE_CURRENT_SOURCE_DIR}/src/tensor/cpu/builds.c
  ${CMAKE_CURRENT_SOURCE_DIR}/src/tensor/cpu/device.c)

include(CheckCCompilerFlag)
set(LK_KERNEL_OBJECTS)
function(lk_kernel_build isa)
  add_library(kernels_${isa} OBJECT ${LK_KERNEL_SOURCES})
  set_target_properties(kernels_${isa} PROPERTIES C_VISIBILITY_PRESET hidden)
  target_include_directories(kernels_${isa} PRIVATE
    ${CMAKE_CURRENT_SOURCE_DIR}/include ${CMAKE_CURRENT_SOURCE_DIR}/src)
  string(TOUPPER ${isa} upper)
  target_compile_definitions(kernels_${isa} PRIVATE LK_ISA=${isa} LK_VEC_${upper})
  target_compile_options(kernels_${isa} PRIVATE ${ARGN})
  set(LK_KERNEL_OBJECTS ${LK_KERNEL_OBJECTS} $<TARGET_OBJECTS:kernels_${isa}> PARENT_SCOPE)
endfunction()

if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  lk_kernel_build(avx512 -mavx2 -mfma -mavx512f -mavx512bw -mavx512dq -mavx512vl -mprefer-vector-width=512)
  lk_kernel_build(avx2 -mavx2 -mfma)
  lk_kernel_build(scalar -mfma)
elseif(CMAKE_SYSTEM_PROCESSOR MATCHES "aarch64|arm64")
  # gcc's first scheduling pass moves values between registers in the matrix kernels, which takes an eighth of their time.
  check_c_compiler_flag(-fno-schedule-insns LK_HAS_NO_SCHEDULE_INSNS)
  lk_kernel_build(neon $<$<BOOL:${LK_HAS_NO_SCHEDULE_INSNS}>:-fno-schedule-insns>)
  lk_kernel_build(scalar)
else()
  lk_kernel_build(scalar)
endif()
