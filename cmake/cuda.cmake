# The CUDA device: host code in src/tensor/cuda/*.c, kernels in *.cu. Sets
# LK_CUDA_FOUND, LK_CUDA_SOURCES, LK_CUDA_OBJECTS, LK_CUDA_INCLUDE_DIRS and
# LK_CUDA_LIBRARY.
#
# nvcc is called as a tool; CUDA is not a language of the CMake project. So linking
# stays C, nvcc does not get the C flags, and a broken nvcc gives a message instead of
# ending the configuration.
set(LK_CUDA AUTO CACHE STRING "GPUs: AUTO (where the CUDA toolkit is found), ON or OFF")
set_property(CACHE LK_CUDA PROPERTY STRINGS AUTO ON OFF)
set(LK_CUDA_ARCHS 90 CACHE STRING "Compute capabilities to compile for, as in 80;90; others compile at first use")

# Prints why CUDA is off; an error with LK_CUDA=ON.
function(lk_cuda_missing why)
  if(NOT LK_CUDA STREQUAL AUTO)
    message(FATAL_ERROR "LK_CUDA=${LK_CUDA}: ${why}")
  endif()
  message(STATUS "CUDA: off, ${why}")
endfunction()

# Finds the toolkit of nvcc, and cuDNN in the toolkit or in the usual folders.
function(lk_cuda_find)
  find_program(LK_NVCC nvcc HINTS ENV CUDA_HOME ENV CUDA_PATH PATHS /usr/local/cuda /opt/cuda PATH_SUFFIXES bin)
  if(NOT LK_NVCC)
    lk_cuda_missing("nvcc is not found (CUDA_HOME names its toolkit)")
    return()
  endif()
  get_filename_component(nvcc ${LK_NVCC} REALPATH)
  get_filename_component(bin ${nvcc} DIRECTORY)
  get_filename_component(root ${bin} DIRECTORY)
  set(folders ${root} ${root}/targets/${CMAKE_SYSTEM_PROCESSOR}-linux ${root}/targets/sbsa-linux)
  find_path(LK_CUDART_INCLUDE cuda_runtime_api.h HINTS ${folders} PATH_SUFFIXES include)
  find_path(LK_CUBLASLT_INCLUDE cublasLt.h HINTS ${folders} PATH_SUFFIXES include)
  find_path(LK_CUDNN_INCLUDE cudnn.h HINTS ENV CUDNN_HOME ENV CUDNN_PATH ${folders} PATH_SUFFIXES include)
  find_path(LK_NCCL_INCLUDE nccl.h HINTS ENV NCCL_HOME ${folders} PATH_SUFFIXES include)
  find_library(LK_CUDART cudart_static HINTS ${folders} PATH_SUFFIXES lib64 lib)
  foreach(part CUDART_INCLUDE:cuda_runtime_api.h CUBLASLT_INCLUDE:cublasLt.h CUDNN_INCLUDE:cudnn.h
      CUDART:libcudart_static.a)
    string(REPLACE ":" ";" part ${part})
    list(GET part 0 variable)
    list(GET part 1 file)
    if(NOT LK_${variable})
      lk_cuda_missing("${file} is not found for ${LK_NVCC}")
      return()
    endif()
  endforeach()
  set(directories ${LK_CUDART_INCLUDE} ${LK_CUBLASLT_INCLUDE} ${LK_CUDNN_INCLUDE})
  if(LK_NCCL_INCLUDE)
    list(APPEND directories ${LK_NCCL_INCLUDE})
  endif()
  list(REMOVE_DUPLICATES directories)
  set(LK_CUDA_INCLUDE_DIRS ${directories} PARENT_SCOPE)
  set(LK_CUDA_LIBRARY ${LK_CUDART} PARENT_SCOPE)
  set(LK_CUDA_FOUND ON PARENT_SCOPE)
endfunction()

# No contraction, as in C; division and square roots follow IEEE by default. GPUs
# without an entry in LK_CUDA_ARCHS use the PTX of the oldest one. Files named *_hopper.cu
# use instructions of compute capability 9.0 that no other GPU has (LK_CUDA_HOPPER). Legacy launches do not
# need the C++ library: newer ones initialise a static variable, with locks.
function(lk_cuda_flags)
  set(host -D__NV_LEGACY_LAUNCH,-fPIC,-fno-exceptions,-fno-rtti,-Wall,-Wextra)
  set(flags -std=c++17 -O3 -fmad=false)
  set(codes -gencode arch=compute_80,code=compute_80)
  foreach(arch ${LK_CUDA_ARCHS})
    list(APPEND codes -gencode arch=compute_${arch},code=sm_${arch})
  endforeach()
  if(LK_WERROR)
    list(APPEND flags -Werror all-warnings)
    string(APPEND host ,-Werror)
  endif()
  list(APPEND flags -Xcompiler ${host} -I${CMAKE_CURRENT_SOURCE_DIR}/include -I${CMAKE_CURRENT_SOURCE_DIR}/src)
  # Folders that the compilers search by default must keep their position in the search order.
  foreach(directory ${LK_CUDA_INCLUDE_DIRS})
    if(NOT directory IN_LIST CMAKE_C_IMPLICIT_INCLUDE_DIRECTORIES)
      list(APPEND flags -isystem ${directory})
    endif()
  endforeach()
  set(LK_CUDA_FLAGS ${flags} ${codes} PARENT_SCOPE)
  set(LK_CUDA_HOPPER ${flags} -gencode arch=compute_90a,code=sm_90a PARENT_SCOPE)
endfunction()

# Checks that this nvcc and its C++ compiler work with these flags, and that the result
# can be linked as C; once for each combination.
function(lk_cuda_try)
  set(tried "${LK_NVCC} ${LK_CUDA_FLAGS}")
  if(NOT LK_CUDA_TRIED STREQUAL tried)
    set(folder ${CMAKE_CURRENT_BINARY_DIR}/CMakeFiles/cuda)
    file(WRITE ${folder}/try.cu "#include <cublasLt.h>\n#include <cudnn.h>\n"
      "#if CUDART_VERSION < 12000 || CUDNN_MAJOR < 9\n#error CUDA 12 and cuDNN 9 are needed\n#endif\n"
      "static __global__ void set(int *x)\n{\n    *x = 1;\n}\n"
      "extern \"C\" void start(int *x);\nvoid start(int *x)\n{\n    set<<<1, 1>>>(x);\n}\n")
    set(how WORKING_DIRECTORY ${folder} RESULT_VARIABLE result OUTPUT_VARIABLE output ERROR_VARIABLE output)
    execute_process(COMMAND ${LK_NVCC} ${LK_CUDA_FLAGS} -c try.cu -o try.o ${how})
    if(result EQUAL 0)
      execute_process(COMMAND ${CMAKE_C_COMPILER} -shared -Wl,-z,defs -o try.so try.o ${LK_CUDA_LIBRARY}
        -ldl -lrt -pthread ${how})
    endif()
    if(NOT result EQUAL 0)
      set(LK_CUDA_FOUND OFF PARENT_SCOPE)
      lk_cuda_missing("${LK_NVCC} does not build a small file:\n${output}")
      return()
    endif()
    set(LK_CUDA_TRIED "${tried}" CACHE INTERNAL "")
  endif()
endfunction()

# One object for each file.
function(lk_cuda_objects)
  file(GLOB kernels CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/src/tensor/cuda/kernels/*.cu)
  set(objects)
  foreach(source ${kernels})
    get_filename_component(name ${source} NAME_WE)
    set(object ${CMAKE_CURRENT_BINARY_DIR}/cuda/${name}.o)
    set(flags ${LK_CUDA_FLAGS})
    if(name MATCHES "_hopper$")
      set(flags ${LK_CUDA_HOPPER})
    endif()
    add_custom_command(OUTPUT ${object} DEPENDS ${source} DEPFILE ${object}.d
      COMMAND ${LK_NVCC} ${flags} -MD -MF ${object}.d -MT ${object} -c ${source} -o ${object}
      COMMENT "Building CUDA object ${name}.o" VERBATIM)
    list(APPEND objects ${object})
  endforeach()
  set(LK_CUDA_OBJECTS ${objects} PARENT_SCOPE)
endfunction()

set(LK_CUDA_FOUND OFF)
set(LK_CUDA_SOURCES)
set(LK_CUDA_OBJECTS)
if(LK_CUDA STREQUAL AUTO AND (LK_SANITIZE OR LK_FUZZ))
  message(STATUS "CUDA: off, sanitizers and the driver do not share an address space")
elseif(CMAKE_CROSSCOMPILING AND LK_CUDA)
  lk_cuda_missing("the nvcc of this machine does not compile for another")
elseif(LK_CUDA)
  lk_cuda_find()
endif()
if(LK_CUDA_FOUND)
  lk_cuda_flags()
  lk_cuda_try()
endif()
if(LK_CUDA_FOUND)
  message(STATUS "CUDA: ${LK_NVCC}, compute capabilities ${LK_CUDA_ARCHS}")
  file(MAKE_DIRECTORY ${CMAKE_CURRENT_BINARY_DIR}/cuda)
  file(GLOB_RECURSE LK_CUDA_SOURCES CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/src/tensor/cuda/*.c)
  if(LK_NCCL_INCLUDE)
    set_property(SOURCE src/tensor/cuda/runtime/channel.c src/tensor/cuda/runtime/query.c APPEND PROPERTY COMPILE_DEFINITIONS LK_HAVE_NCCL)
  else()
    message(STATUS "CUDA: without NCCL, nccl.h is not found")
    list(FILTER LK_CUDA_SOURCES EXCLUDE REGEX "/nccl.c$")
  endif()
  lk_cuda_objects()
  # A separate target, because nvcc takes longest and should start at once.
  add_custom_target(kernels_cuda DEPENDS ${LK_CUDA_OBJECTS})
endif()
