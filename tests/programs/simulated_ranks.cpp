// Ranks that SimGrid simulates, each a thread of one Python interpreter that calls main() of a module.
// Arguments: a platform, the number of ranks, a deployment, the module, Python that runs before; options of SimGrid.
#include <Python.h>
#include <cstdio>
#include <cstdlib>
#include <simgrid/s4u.hpp>
#include <smpi/smpi.h>
#include <string>
#undef exit
#undef malloc
#undef free

extern "C" void smpi_init_options(); // of SMPI itself: makes its options known before the engine reads them

static std::string module;
static int failed = 0;

static void rank_main(int argc, char** argv) {
  MPI_Init(&argc, &argv); // before the lock is taken: other ranks run meanwhile
  PyGILState_STATE lock = PyGILState_Ensure();
  PyObject* found = PyImport_ImportModule(module.c_str());
  PyObject* done = found ? PyObject_CallMethod(found, "main", nullptr) : nullptr;
  if (!done) {
    PyErr_Print();
    failed = 1;
  }
  Py_XDECREF(done);
  Py_XDECREF(found);
  PyGILState_Release(lock);
  MPI_Finalize();
}

int main(int argc, char** argv) {
  smpi_init_options();
  simgrid::s4u::Engine engine(&argc, argv);
  SMPI_init();
  engine.load_platform(argv[1]);
  module = argv[4];
  SMPI_app_instance_register("app", rank_main, std::stoi(argv[2]));
  Py_InitializeEx(0);
  if (PyRun_SimpleString(argv[5]))
    return 1;
  PyThreadState* state = PyEval_SaveThread();
  engine.load_deployment(argv[3]);
  engine.run();
  std::fflush(stdout);
  std::_Exit(failed); // objects of ranks that have ended are not to be freed again
}
