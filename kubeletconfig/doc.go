// Package kubeletconfig loads the kubelet's own configuration for a node agent that is not the
// kubelet: a KubeletConfiguration file (kubelet.config.k8s.io/v1beta1), a directory of drop-ins,
// and the kubelet's command-line flags.
//
//	flags := kubeletconfig.NewFlags()
//	flags.Bind(flag.CommandLine) // beside flags of your own
//	flag.Parse()
//	cfg, warnings, err := kubeletconfig.Load(kubeletconfig.Options{Flags: flags})
//	if err != nil {
//		return err // one line per mistake
//	}
//	for _, w := range warnings {
//		log.Warn("questionable setting in the configuration", zap.String("warning", w))
//	}
//	manager, err := gc.NewImageCollector(gc.ImageConfig{Policy: cfg.ImageGC(), ...})
//
// # Merging
//
// Values have the kubelet's precedence: flags, then drop-ins (a later file before an earlier
// one), then the main file, then defaults. Files are merged as JSON merge patches. Defaults that
// are derived from other fields are computed from the merged result; the kubelet computes them
// from the main file only. Relative paths in the main file are relative to its directory.
//
// Nothing is ignored silently. The error has a line for each invalid value, with the file that
// set the value last, the field, the value, and the allowed values; see [Mistake]. Load warns
// about fields that are unknown, duplicate, or without effect in a node that consists of this
// module's packages. List the fields that your program implements itself in Options.Used.
//
// # Use
//
// [Config] embeds the KubeletConfiguration and adds the values that the kubelet takes only from
// flags. Each method returns the configuration of one package of this module: eviction thresholds,
// policies of garbage collection, reserved resources, options of the CPU, memory and topology
// managers, cgroups, shutdown. The methods do not inspect the machine; values that depend on the
// machine, such as the capacity, are arguments. The package imports neither the agent nor an API
// client, so a program can use it to configure single packages. [SetDefaults], [Validate] and
// [Flags.Apply] are for programs that read files in another way.
//
// # Untrusted files
//
// The loader assumes that files may be hostile. It reads only regular files, so that it does not
// block on a FIFO. All files of a configuration together may have 1 MiB, and a file may have 4 MiB
// after its YAML aliases are expanded. Exponents of quantities may have two digits, since the
// parser of Kubernetes would take hours for larger ones. At most a hundred errors and warnings
// are listed, each on one line, whatever the files contain.
//
// There is no global state. All functions are safe for concurrent use, as long as the Flags or
// the Config are not modified at the same time. Files are not watched; load them again to see
// changes.
//
// Tier: stable.
package kubeletconfig
