# shellcheck shell=bash
# mpi.sh - starts programs with Open MPI's and MPICH's mpirun, whichever of them are here. Sourced.

# Root and more ranks than cores are normal in tests; containers often forbid Open MPI's copies between processes.
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
export OMPI_MCA_btl_vader_single_copy_mechanism=none OMPI_MCA_hwloc_base_binding_policy=none

# launcher_of NAME - prints the mpirun of openmpi or mpich; fails where there is none.
launcher_of() {
    local name said=HYDRA
    [ "$1" = openmpi ] && said="Open MPI"
    for name in "mpirun.$1" mpirun mpiexec.hydra; do
        if command -v "$name" >/dev/null 2>&1 && "$name" --version 2>&1 | grep -q "$said"; then
            command -v "$name"
            return 0
        fi
    done
    return 1
}
# mpis_here PLUGINS - prints the MPI libraries that have a launcher here and a plug-in in the folder PLUGINS; says on
# stderr what is missing.
mpis_here() {
    local name
    for name in openmpi mpich; do
        if [ ! -e "$1/lockstep-$name.so" ]; then
            echo "no plug-in lockstep-$name.so in this build: left out" >&2
        elif ! launcher_of $name >/dev/null; then
            echo "no mpirun of $name here: left out" >&2
        else
            echo $name
        fi
    done
}
