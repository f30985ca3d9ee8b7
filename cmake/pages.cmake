# Man pages and completion scripts: the program writes them from the tables of its commands and options.
# Included by CMakeLists.txt; run as a script (cmake -P) it writes the files into OUT.
if(CMAKE_SCRIPT_MODE_FILE)
  # page(FILE ARGUMENTS...) - writes what `lockstep help ARGUMENTS` prints.
  function(page file)
    execute_process(COMMAND ${PROGRAM} help ${ARGN} OUTPUT_FILE ${OUT}/${file} RESULT_VARIABLE status)
    if(NOT status EQUAL 0)
      message(FATAL_ERROR "${PROGRAM} help ${ARGN} ended with ${status}")
    endif()
  endfunction()

  execute_process(COMMAND ${PROGRAM} help OUTPUT_VARIABLE commands RESULT_VARIABLE status)
  string(REGEX MATCHALL "\n  [a-z]+ " commands "${commands}")
  if(NOT status EQUAL 0 OR NOT commands)
    message(FATAL_ERROR "${PROGRAM} help ended with ${status} and lists no commands")
  endif()
  file(REMOVE_RECURSE ${OUT})
  file(MAKE_DIRECTORY ${OUT}/man/man1 ${OUT}/completions)
  page(man/man1/lockstep.1 --man)
  foreach(line ${commands})
    string(STRIP "${line}" command)
    page(man/man1/lockstep-${command}.1 --man ${command})
  endforeach()
  page(completions/lockstep --completion bash)
  page(completions/_lockstep --completion zsh)
  file(TOUCH ${OUT}/written)
  return()
endif()

# A program for another architecture cannot be run here, and one with sanitizers is slow and not installed.
set(LK_PAGES)
if(NOT CMAKE_CROSSCOMPILING AND NOT LK_SANITIZE)
  set(LK_PAGES ${CMAKE_CURRENT_BINARY_DIR}/pages)
  add_custom_command(OUTPUT ${LK_PAGES}/written
    COMMAND ${CMAKE_COMMAND} -DPROGRAM=$<TARGET_FILE:lockstep-cli> -DOUT=${LK_PAGES} -P ${CMAKE_CURRENT_LIST_FILE}
    DEPENDS lockstep-cli ${CMAKE_CURRENT_LIST_FILE}
    COMMENT "Writing man pages and completion scripts" VERBATIM)
  add_custom_target(pages ALL DEPENDS ${LK_PAGES}/written)
endif()
