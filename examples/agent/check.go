package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	v1 "k8s.io/api/core/v1"

	"github.com/nodewright/nodewright/agent/local"
	"github.com/nodewright/nodewright/kubeletconfig"
	"github.com/nodewright/nodewright/nodeagent"
	"github.com/nodewright/nodewright/nodeagent/rootless"
	"github.com/nodewright/nodewright/podmgr"
)

// wouldNotRun is the exit code of "agent check" if it finds a mistake or a pod that would not run.
const wouldNotRun exitError = 1

// checkFlags are the flags of "agent check".
type checkFlags struct {
	clientFlags
	manifests, config string
}

func newCheck(std stdio) *cobra.Command {
	var c checkFlags
	cmd := &cobra.Command{
		Use: "check [-f FILE|DIRECTORY] [--config FILE]", Short: "Check manifests and the configuration before they are copied to the node",
		Long: `Check manifests and the configuration as the agent reads them. The command prints each mistake with its file, line, field
and value, and what to write instead. If an agent runs on this machine, the command also prints what each pod would lack:
resources, images, ConfigMaps, Secrets, claims, volumes and host ports. A pod of the node with the same name counts as
replaced. The exit code is 0 if all pods would run, and 1 otherwise. Without an agent only the manifests are checked.`,
		Example:    "  agent check -f web.yaml\n  agent check -f /etc/nodewright/manifests\n  agent check --config /etc/nodewright/agent.yaml\n  agent check -f - < web.yaml",
		SuggestFor: []string{"validate", "lint", "verify"},
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				return fmt.Errorf("check takes no argument, got %q; give manifests with -f", args[0])
			}
			return nil
		},
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE:              func(cmd *cobra.Command, _ []string) error { return c.check(cmd.Context(), std) },
	}
	c.register(cmd)
	cmd.Flags().StringVarP(&c.manifests, "filename", "f", "", "a manifest, or a directory of manifests; - means standard input; by default staticPodPath of --config")
	cmd.Flags().StringVar(&c.config, "config", "", "a KubeletConfiguration `file`")
	return cmd
}

func (c *checkFlags) check(ctx context.Context, std stdio) error {
	if c.manifests == "" && c.config == "" {
		return errors.New("check what? Give manifests with -f, or a configuration with --config")
	}
	good := true
	name := ""
	if c.config != "" {
		if err := rootless.Check(ctx); err != nil {
			for line := range strings.SplitSeq(err.Error(), "\n") {
				fmt.Fprintln(std.out, "warning: "+oneLine(line))
			}
		}
		conf, right := checkConfig(std.out, c.config)
		good = right
		if conf != nil {
			c.manifests, name = cmp.Or(c.manifests, conf.StaticPodPath), conf.Hostname
		}
	}
	if c.manifests != "" {
		right, err := c.checkManifests(ctx, std, name)
		if err != nil {
			return err
		}
		good = good && right
	}
	if !good {
		return wouldNotRun
	}
	return nil
}

// checkConfig prints the errors of a configuration, and warnings about fields without effect. It
// reports whether the configuration is valid.
func checkConfig(out io.Writer, file string) (conf *kubeletconfig.Config, right bool) {
	flags := kubeletconfig.NewFlags()
	flags.ConfigFile = file
	conf, warnings, err := kubeletconfig.Load(kubeletconfig.Options{Flags: flags, Used: moreFields})
	if err == nil {
		err = nodeagent.Supported(conf)
	}
	for _, w := range warnings {
		fmt.Fprintln(out, "warning: "+oneLine(w))
	}
	if err != nil {
		for line := range strings.SplitSeq(err.Error(), "\n") {
			fmt.Fprintln(out, oneLine(line))
		}
		return conf, false
	}
	fmt.Fprintf(out, "%s: is valid\n", oneLine(file))
	return conf, true
}

// checkManifests prints the errors of manifests and, for each pod, what this machine lacks. It
// reports whether all pods would run. If no agent runs, it reports whether the manifests are valid.
func (c *checkFlags) checkManifests(ctx context.Context, std stdio, name string) (right bool, err error) {
	cl := c.client()
	node, nodeErr := cl.Node(ctx)
	if nodeErr == nil {
		name = node.Name
	}
	if name == "" {
		if name, err = os.Hostname(); err != nil {
			return false, err
		}
	}
	name = strings.ToLower(name)
	snap, files, err := c.read(ctx, std.in, name)
	if err != nil {
		return false, err
	}
	for _, p := range snap.Problems {
		fmt.Fprintln(std.out, oneLine(problemLine(local.Problem(p))))
	}
	if len(snap.Pods) == 0 && len(snap.Problems) == 0 {
		fmt.Fprintf(std.out, "%s: has no pod\n", oneLine(c.manifests))
		return true, nil
	}
	answers, err := cl.Fit(ctx, snap.Pods...)
	if err != nil {
		if !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.ECONNREFUSED) {
			return false, err
		}
		for _, p := range snap.Pods {
			fmt.Fprintf(std.out, "%s: %s has no mistake\n", oneLine(files(p)), asWritten(p, name))
		}
		fmt.Fprintf(std.err, "checked only the manifests, not whether this machine has what they need: %s\n", oneLine(err.Error()))
		return len(snap.Problems) == 0, nil
	}
	good := 0
	for i, p := range snap.Pods {
		f := &answers[i]
		f.Missing = slices.DeleteFunc(f.Missing, func(m local.FitMissing) bool { return has(&snap, m) })
		if wouldRun(f) {
			good++
		}
		fmt.Fprintf(std.out, "%s: %s %s\n", oneLine(files(p)), asWritten(p, name), verdict(f))
	}
	switch {
	case good == len(snap.Pods) && len(snap.Problems) == 0:
		fmt.Fprintf(std.out, "%s would run\n", counted(good, "pod"))
		return true, nil
	case len(snap.Problems) > 0:
		fmt.Fprintf(std.out, "%d of %s would run; %s\n", good, counted(len(snap.Pods), "pod"), counted(len(snap.Problems), "mistake"))
	default:
		fmt.Fprintf(std.out, "%d of %s would run\n", good, counted(len(snap.Pods), "pod"))
	}
	return false, nil
}

// read reads the manifests as the agent does. The function file returns the path of a pod's manifest,
// in the form in which the user gave it.
func (c *checkFlags) read(ctx context.Context, in io.Reader, node string) (snap podmgr.Snapshot, file func(*v1.Pod) string, err error) {
	if c.manifests == "-" {
		b, err := readManifest(in, "-")
		if err != nil {
			return snap, nil, err
		}
		snap = podmgr.Decode("-", b)
		for _, p := range snap.Pods {
			p.Name += "-" + node
		}
		return snap, func(*v1.Pod) string { return "-" }, nil
	}
	path, err := filepath.Abs(c.manifests)
	if err != nil {
		return snap, nil, err
	}
	snap, err = podmgr.Read(ctx, podmgr.DirectoryConfig{Path: path, NodeName: node})
	if err != nil {
		return snap, nil, err
	}
	shown := func(file string) string {
		if rest, below := strings.CutPrefix(file, path); below {
			return filepath.Clean(c.manifests) + rest
		}
		return file
	}
	for i := range snap.Problems {
		snap.Problems[i].File = shown(snap.Problems[i].File)
	}
	return snap, func(p *v1.Pod) string { return shown(snap.Files[p.UID]) }, nil
}

// asWritten returns the namespace and name of a static pod as in its manifest, without the node's
// name.
func asWritten(p *v1.Pod, node string) string {
	return oneLine(p.Namespace + "/" + strings.TrimSuffix(p.Name, "-"+node))
}

// has reports whether the checked manifests contain an object that the node lacks.
func has(s *podmgr.Snapshot, m local.FitMissing) bool {
	namespace, name, _ := strings.Cut(m.Name, "/")
	switch m.Kind {
	case "ConfigMap":
		return hasObject(s.ConfigMaps, namespace, name)
	case "Secret":
		return hasObject(s.Secrets, namespace, name)
	case "PersistentVolumeClaim":
		return hasObject(s.Claims, namespace, name)
	case "ResourceClaim":
		return hasObject(s.ResourceClaims, namespace, name)
	}
	return false
}

func hasObject[T interface {
	GetNamespace() string
	GetName() string
}](all []T, namespace, name string) bool {
	return slices.ContainsFunc(all, func(o T) bool { return o.GetNamespace() == namespace && o.GetName() == name })
}
