# embed.cmake - writes files into a C source as arrays. Run as
#     cmake -DOUT=page.c -DHEADER=serve/page.h -DTYPE=lk_page_file -DNAME=lk__page_files -DFILES=a;b -P embed.cmake
# The arrays are of char, and a row of NAME has a file's name, its data and its bytes.
set(arrays)
set(rows)
set(index 0)
foreach(file ${FILES})
  get_filename_component(name ${file} NAME)
  file(READ ${file} data HEX)
  string(REGEX REPLACE "([0-9a-f][0-9a-f])" "'\\\\x\\1'," data "${data}")
  string(APPEND arrays "static const char file_${index}[] = {${data}};\n")
  string(APPEND rows "    {\"${name}\", file_${index}, sizeof file_${index}},\n")
  math(EXPR index "${index} + 1")
endforeach()
file(WRITE ${OUT} "#include \"${HEADER}\"\n${arrays}const ${TYPE} ${NAME}[] = {\n${rows}    {0, 0, 0},\n};\n")
