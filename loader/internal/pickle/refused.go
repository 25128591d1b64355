package pickle

import (
	"strings"
)

// isRefused tells whether a global is one that no checkpoint needs and attacks use: what runs code or processes,
// imports, reads attributes by name, opens files or connections, or unpickles again. Nothing here runs any of it; the
// list exists so that a file that would harm other loaders is called unsafe even where the name is not applied. It
// cannot be complete, and need not be: a name that is not on it can only stand for an inert object.
func isRefused(g Global) bool {
	if IsPythonData(g) {
		return false
	}
	module := strings.Split(g.Module, ".")
	if refusedRoots[strings.TrimLeft(module[0], "_")] {
		return true
	}
	for path := g.String(); ; {
		if refusedPaths[path] {
			return true
		}
		i := strings.LastIndexByte(path, '.')
		if i < 0 {
			break
		}
		path = path[:i]
	}
	// Unpicklers since protocol 4 follow a dotted name through attributes, which reaches what a module imported.
	name := strings.Split(g.Name, ".")
	for _, part := range name {
		if strings.HasPrefix(part, "__") && strings.HasSuffix(part, "__") || refusedNames[strings.TrimLeft(part, "_")] {
			return true
		}
		if len(name) > 1 && refusedRoots[strings.TrimLeft(part, "_")] {
			return true
		}
	}
	return false
}

func setOf(lists ...string) map[string]bool {
	set := make(map[string]bool)
	for _, list := range lists {
		for _, name := range strings.Fields(list) {
			set[name] = true
		}
	}
	return set
}

// refusedRoots are top-level modules, without leading underscores, of which nothing may be named.
var refusedRoots = setOf(
	// The interpreter and the system. Of builtins, copyreg and codecs, IsPythonData knows what is allowed.
	`os nt posix ntpath posixpath nturl2path sys builtin__ builtins sitebuiltins site sitecustomize usercustomize
	 subprocess posixsubprocess winapi winreg msvcrt msilib commands popen2 pty tty termios fcntl resource mmap signal
	 faulthandler gc inspect atexit ctypes cffi osx_support aix_support pyrepl syslog grp pwd spwd crypt`,
	// Importing and compiling.
	`importlib imp frozen_importlib frozen_importlib_external zipimport zipapp pkgutil runpy modulefinder code codeop
	 compileall py_compile ast dis symtable tokenize linecache copyreg copy_reg codecs`,
	// Debuggers, profilers and test runners, all of which run what they are told.
	`pdb bdb cmd timeit cProfile profile hotshot pstats trace tracemalloc lsprof doctest unittest pytest nose
	 testcapi testinternalcapi cgitb pydoc pydoc_data rlcompleter readline`,
	// Gadgets: calling by name and composing calls.
	`operator functools itertools`,
	// Other pickles and their like.
	`pickle cPickle pickletools dill cloudpickle joblib marshal shelve dbm anydbm whichdb jsonpickle yaml ruamel`,
	// Files, processes and threads.
	`shutil tempfile glob fileinput zipfile tarfile sqlite3 multiprocessing concurrent threading thread
	 dummy_thread dummy_threading sched queue Queue asyncio asyncore asynchat select selectors socketserver SocketServer
	 contextvars interpreters xxsubinterpreters xxinterpchannels`,
	// The network.
	`socket ssl http httplib urllib urllib2 urllib3 urlparse requests aiohttp httpx ftplib smtplib smtpd poplib imaplib
	 nntplib telnetlib xmlrpc xmlrpclib SimpleXMLRPCServer BaseHTTPServer SimpleHTTPServer CGIHTTPServer wsgiref cgi
	 webbrowser antigravity robotparser paramiko fabric invoke`,
	// Installers and development tools.
	`pip ensurepip venv virtualenv conda distutils distutils_hack setuptools pkg_resources idlelib lib2to3 tkinter
	 Tkinter turtle turtledemo curses IPython ipykernel jupyter_client sh plumbum pexpect getpass platform
	 cython Cython pyximport numexpr jinja2 mako execnet`,
)

// refusedNames are names of attributes, without leading underscores, that are harmful wherever a module has them.
var refusedNames = setOf(`os sys nt posix subprocess builtins importlib runpy ctypes shutil pickle cPickle marshal
	eval exec execfile execv execve execvp system popen popen2 popen3 Popen check_output check_call getoutput
	getstatusoutput import__ import_module getattr setattr delattr load_module exec_module run_path run_module
	runcode runsource runstring exec_command`)

// refusedPaths are modules, classes and functions of libraries that belong beside a checkpoint.
var refusedPaths = setOf(
	`collections.namedtuple dataclasses.make_dataclass enum.EnumMeta typing.get_type_hints string.Formatter
	 types.FunctionType types.LambdaType types.CodeType types.MethodType types.BuiltinFunctionType
	 types.BuiltinMethodType types.ModuleType types.GeneratorType types.CoroutineType types.FrameType
	 types.TracebackType types.CellType types.new_class types.prepare_class types.resolve_bases types.coroutine
	 types.DynamicClassAttribute logging.config logging.FileHandler logging.handlers uuid._get_command_stdout
	 uuid._popen uuid._get_command weakref.finalize warnings.showwarning json.load json.tool contextlib.ExitStack
	 copy._reconstruct test.support test.libregrtest
	 io.open io.open_code io.FileIO _io.open _io.open_code _io.FileIO`,
	`torch.load torch.save torch.serialization.load torch.serialization._load torch.serialization._legacy_load torch.hub
	 torch.jit.load torch.jit.save torch.jit.script torch.jit.trace torch.jit.CompilationUnit torch.jit._serialization
	 torch.jit._script torch.jit._pickle torch.jit.frontend torch.jit.unsupported_tensor_ops torch.package
	 torch.classes torch.ops torch._ops torch._classes torch.compile torch._C._jit_pass_inline torch._C.import_ir_module
	 torch._C.import_ir_module_from_buffer torch._C._import_ir_module_from_package torch._C._load_for_lite_interpreter
	 torch.utils.cpp_extension torch.utils._cpp_extension_versioner torch.utils.model_zoo torch.utils.bottleneck
	 torch.utils.collect_env torch.utils.show_pickle torch.utils._config_module torch.utils.data.datapipes
	 torch.utils.hipify torch.utils.benchmark torch.utils.tensorboard
	 torch.multiprocessing torch.distributed.rpc torch.distributed.elastic torch.distributed.launch torch.distributed.run
	 torch.distributed.distributed_c10d torch.distributed.checkpoint.state_dict_loader torch.testing torch._testing
	 torch._dynamo.guards torch._dynamo.debug_utils torch._dynamo.repro torch._dynamo.testing
	 torch._inductor torch._functorch torch.fx.graph_module torch.fx._lazy_graph_module
	 torch.fx.experimental torch.fx.interpreter torch.onnx torch.export.load torch._export.serde torch._utils_internal
	 torch._weights_only_unpickler torch.cuda._compile_kernel torch.backends._nnapi torch.library torch._sources
	 torch._appdirs torch._lazy torch.storage._load_from_bytes`,
	`numpy.f2py numpy.testing numpy.distutils numpy.ctypeslib numpy.load numpy.save numpy.savez numpy.savez_compressed
	 numpy.fromfile numpy.fromregex numpy.loadtxt numpy.savetxt numpy.genfromtxt numpy.memmap numpy.DataSource
	 numpy.core.memmap numpy._core.memmap numpy.lib.npyio numpy.lib._npyio_impl numpy.lib.format
	 numpy.lib._datasource numpy.lib.utils numpy.lib._utils_impl numpy.lib.introspect numpy.compat numpy.vectorize
	 numpy.frompyfunc numpy.apply_along_axis numpy.apply_over_axes numpy.fromfunction numpy.piecewise
	 numpy.ma.mrecords numpy.core.records.fromfile numpy.core.multiarray.fromfile
	 numpy.multiarray.fromfile numpy._core.multiarray.fromfile numpy.__config__ numpy.show_config`,
	`pandas.eval pandas.read_pickle pandas.io pandas.core.computation scipy.io scipy.weave scipy._lib._ccallback
	 sympy.sympify sympy.parsing sympy.utilities.lambdify sklearn.externals tensorflow.io tensorflow.keras.models
	 tensorflow.python keras.models keras.layers.Lambda keras.src.layers.core.lambda_layer onnx.hub
	 transformers.dynamic_module_utils transformers.utils.import_utils huggingface_hub.hf_api nltk.internals
	 PIL.ImageMath PIL.ImageShow matplotlib.testing fsspec.core fsspec.implementations
	 pytorch_lightning.utilities.argparse lightning_utilities.core.imports`,
)
