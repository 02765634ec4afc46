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
//	manager, err := gc.NewImageCollector(gc.ImageConfig{Policy: cfg.ImageGC(), ...})
//
// # Merging
//
// Files are merged as the kubelet does it: later drop-ins over earlier ones over the
// main file (JSON merge patch), flags over all, defaults below. Derived defaults
// follow from the result, where the kubelet derives them from the main file alone.
// Relative paths in the main file are relative to it.
//
// Nothing is ignored silently. Invalid values are an error with a line for each: the file
// that set it last, the field, the value, and what is allowed; see [Mistake]. Fields that are
// unknown, duplicate, or without effect in a node made of this module's packages are
// warnings. List the fields that your program implements itself in Options.Used.
//
// # Use
//
// [Config] embeds the KubeletConfiguration and adds the values that the kubelet has as flags
// only. Each method converts one concern for one block: eviction thresholds, policies of
// garbage collection, reserved resources, options of the CPU, memory and topology managers,
// cgroups, shutdown. They do not inspect the machine; values that depend on it, such as the
// capacity, are arguments. The package imports neither the agent nor a client of API servers,
// so it can configure single blocks. [SetDefaults], [Validate] and [Flags.Apply] are for
// programs that read files in another way.
//
// # Faults
//
// Files are treated as hostile. Only regular files are read, and a FIFO never blocks; all
// files of a configuration together have 1 MiB at most, with at most four YAML aliases, and
// exponents of quantities have at most two digits, since Kubernetes' parser would compute for
// hours with larger ones. At most a hundred errors and warnings are listed, each in one line,
// whatever the files contain.
//
// There is no state: all functions are safe for concurrent use unless the Flags or the
// Config are changed at the same time. Files are not watched; load them again to find changes.
//
// Tier: stable.
package kubeletconfig
