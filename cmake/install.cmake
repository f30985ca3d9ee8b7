# The files of `make install`. The pkg-config file finds its prefix from its own
# location, so an installation can be packaged or moved. The library is static, so a program
# links its dependencies too. They are flags in Libs: Requires would also give programs the
# include folders of libraries that no public header uses.
set(pc_dir ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
file(RELATIVE_PATH LK_PC_TO_PREFIX /prefix/${pc_dir} /prefix)
string(REGEX REPLACE "/$" "" LK_PC_TO_PREFIX "${LK_PC_TO_PREFIX}")
set(LK_PC_LIBRARIES " -lz")
foreach(library XXHASH CJSON SODIUM ${LK_OPTIONAL})
  if(${library}_FOUND)
    list(JOIN ${library}_LDFLAGS " " flags)
    string(APPEND LK_PC_LIBRARIES " ${flags}")
  endif()
endforeach()
# The CUDA runtime of the toolkit is linked statically, too.
set(LK_PC_CUDA)
if(LK_CUDA_FOUND)
  get_filename_component(cuda_folder ${LK_CUDA_LIBRARY} DIRECTORY)
  set(LK_PC_CUDA " -L${cuda_folder} -lcudart_static -lrt")
endif()
configure_file(${CMAKE_CURRENT_LIST_DIR}/lockstep.pc.in ${CMAKE_CURRENT_BINARY_DIR}/lockstep.pc @ONLY)

install(TARGETS lockstep ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
if(TARGET lockstep-cli)
  install(TARGETS lockstep-cli RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()
if(LK_PLUGINS)
  install(TARGETS ${LK_PLUGINS} LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}/lockstep)
endif()
install(DIRECTORY include/lockstep DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN "*.h")
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/lockstep.pc DESTINATION ${pc_dir})
