// Package kubeletconfig loads the kubelet's own configuration for a node agent that
// is not the kubelet: a KubeletConfiguration file (kubelet.config.k8s.io/v1beta1),
// a directory of drop-ins, and the kubelet's command-line flags over both.
//
//	flags := kubeletconfig.NewFlags()
//	flags.Bind(flag.CommandLine) // beside flags of your own
//	flag.Parse()
//	cfg, warnings, err := kubeletconfig.Load(kubeletconfig.Options{Flags: flags})
//	if err != nil {
//		return err // a line for each mistake
//	}
//	for _, w := range warnings {
//		log.Warn("configuration", zap.String("warning", w))
//	}
//	manager, err := imagegc.New(imagegc.Config{Policy: cfg.ImageGC(), ...})
//
// # What it says
//
// Files are merged as the kubelet does it: later drop-ins over earlier ones over the
// main file (JSON merge patch), flags over all, defaults below. Derived defaults
// follow from the result, where the kubelet derives them from the main file alone.
// Relative paths in the main file are relative to it.
//
// Nothing is ignored without a word. What is wrong is an error that has a line for
// each value: the file that set it last, the field, the value, what is allowed; see
// [Mistake]. What is unknown, stands twice, or has no effect in a node made of this
// module's packages, is a warning. Names of Options.Used have an effect by the caller.
//
// # What it is for
//
// [Config] embeds the KubeletConfiguration, and has the values that the kubelet takes
// by flags alone. Its methods put one concern each into the words of one block:
// thresholds of eviction, policies of garbage collection, reserved resources, options
// of the CPU, memory and topology managers, cgroups, shutdowns. They read nothing of
// the machine; what depends on it, as the capacity, is an argument. The package knows
// neither agent nor API server, so that single blocks can be configured with it, and
// [SetDefaults], [Validate] and [Flags.Apply] serve who reads files in another way.
//
// # Faults
//
// Files are taken to be hostile. Only regular files are read, without ever blocking
// on a FIFO; all files of a configuration have a mebibyte together; YAML aliases come
// to four at most, and quantities have exponents of two digits, since Kubernetes'
// parser would compute for hours with larger ones. Errors and warnings list a hundred
// things at most, each in a line, whatever the texts in a file are.
//
// There is no state: everything may be called from any goroutine, as long as nobody
// changes the Flags or the Config meanwhile. Loading again is how a change is found;
// nothing watches the files.
//
// Tier: stable.
package kubeletconfig
