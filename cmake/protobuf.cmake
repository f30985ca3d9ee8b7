# TensorBoard's event files: protobuf-c, and the C code that its compiler makes of src/record/tfevents.proto. Sets
# PROTOBUFC_FOUND only if both are there, and LK_PROTOBUF_SOURCES.
pkg_check_modules(PROTOBUFC IMPORTED_TARGET libprotobuf-c)
find_program(LK_PROTOC protoc-c DOC "Compiler of protobuf-c")
set(LK_PROTOBUF_SOURCES)
if(PROTOBUFC_FOUND AND LK_PROTOC)
  set(proto ${CMAKE_CURRENT_SOURCE_DIR}/src/record/tfevents.proto)
  set(folder ${CMAKE_CURRENT_BINARY_DIR}/generated/record)
  file(MAKE_DIRECTORY ${folder})
  set(LK_PROTOBUF_SOURCES ${folder}/tfevents.pb-c.c)
  add_custom_command(OUTPUT ${folder}/tfevents.pb-c.c ${folder}/tfevents.pb-c.h
    COMMAND ${LK_PROTOC} --proto_path=${CMAKE_CURRENT_SOURCE_DIR}/src/record --c_out=${folder} ${proto}
    DEPENDS ${proto} VERBATIM)
  # Code of another project's generator.
  set_source_files_properties(${LK_PROTOBUF_SOURCES} PROPERTIES COMPILE_OPTIONS -w)
else()
  set(PROTOBUFC_FOUND FALSE)
endif()
