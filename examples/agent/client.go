package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	v1 "k8s.io/api/core/v1"

	"github.com/nodewright/nodewright/agent/local"
	"github.com/nodewright/nodewright/kubeletconfig"
	"github.com/nodewright/nodewright/node"
	"github.com/nodewright/nodewright/nodeagent/rootless"
	"github.com/nodewright/nodewright/podmeta"
)

// clientFlags are the flags of every command that connects to a running agent.
type clientFlags struct {
	rootDir, socket, namespace string
}

// register adds the flags that select the agent.
func (c *clientFlags) register(cmd *cobra.Command) {
	fs := cmd.Flags()
	rootDirFlag(fs, &c.rootDir)
	fs.StringVar(&c.socket, "socket", "", "the agent's `socket`; default ROOT_DIR/agent.sock")
}

// packagedRootDir is the root directory of the agent of the Debian package.
const packagedRootDir = "/var/lib/nodewright"

// rootDirFlag adds the flag --root-dir to a command that uses the files or the socket of an agent.
func rootDirFlag(fs *pflag.FlagSet, dir *string) {
	fs.StringVar(dir, "root-dir", "", "the root `directory` of the agent; default "+packagedRootDir+" if an agent has used it, otherwise "+kubeletconfig.DefaultRootDir+"; for users other than root, the first choice is ~/.local/share/nodewright")
}

// rootDirOr returns dir or, if dir is "", the default root directory.
func rootDirOr(dir string) string {
	if dir != "" {
		return dir
	}
	if own := rootless.RootDir(); own != "" {
		return usedRootDir(own, packagedRootDir, kubeletconfig.DefaultRootDir, own)
	}
	return usedRootDir(packagedRootDir, kubeletconfig.DefaultRootDir)
}

// usedRootDir returns the first of dirs that contains an agent's lock file, or the last of dirs if
// none does. The lock file remains when the agent exits.
func usedRootDir(dirs ...string) string {
	for _, dir := range dirs {
		if _, err := os.Lstat(filepath.Join(dir, node.RootLockName)); err == nil {
			return dir
		}
	}
	return dirs[len(dirs)-1]
}

// registerPods adds the flags that select the agent and a namespace.
func (c *clientFlags) registerPods(cmd *cobra.Command) {
	c.register(cmd)
	cmd.Flags().StringVarP(&c.namespace, "namespace", "n", "", "the `namespace`; by default all, or any with a pod of that name")
	completeFlag(cmd, "namespace", c.from(c.namespaces))
}

func (c *clientFlags) client() *local.Client { return local.NewClient(c.socketPath()) }

func (c *clientFlags) socketPath() string {
	if c.socket != "" {
		return c.socket
	}
	return filepath.Join(rootDirOr(c.rootDir), "agent.sock")
}

// find returns the pod with a name. The name may have the form NAMESPACE/NAME or pod/NAME. It
// may also be the name in a manifest, to which the agent appends the node's name. find fails
// if there is no such pod, or if the name is ambiguous.
func (c *clientFlags) find(ctx context.Context, cl *local.Client, name string) (*v1.Pod, error) {
	given, namespace := name, c.namespace
	if kind, n, ok := strings.Cut(name, "/"); ok && resourceNamed(kind) == &resources[0] { // as get -o name has it
		name = n
	} else if ns, n, ok := strings.Cut(name, "/"); ok {
		if namespace != "" && namespace != ns {
			return nil, fmt.Errorf("-n %s with %q: which namespace?", namespace, given)
		}
		namespace, name = ns, n
	}
	list, err := cl.Pods(ctx)
	if err != nil {
		return nil, err
	}
	var exact, prefixed []*v1.Pod
	for i := range list.Items {
		p := &list.Items[i]
		if namespace != "" && p.Namespace != namespace {
			continue
		}
		switch {
		case p.Name == name:
			exact = newest(exact, p)
		case p.Name == name+"-"+strings.ToLower(p.Spec.NodeName):
			prefixed = newest(prefixed, p)
		}
	}
	found := exact
	if len(found) == 0 {
		found = prefixed
	}
	switch len(found) {
	case 0:
		if namespace != "" {
			return nil, fmt.Errorf("%w %q in namespace %q", errNoPod, name, namespace)
		}
		return nil, fmt.Errorf("%w %q", errNoPod, name)
	case 1:
		return found[0], nil
	}
	var where []string
	for _, p := range found {
		where = append(where, p.Namespace+"/"+p.Name)
	}
	return nil, fmt.Errorf("%q could be %s; say which with -n", given, strings.Join(where, ", "))
}

// newest adds p to pods. If two pods have one name, because the older one is being
// deleted, it keeps only the newer one.
func newest(pods []*v1.Pod, p *v1.Pod) []*v1.Pod {
	for i, old := range pods {
		if old.Namespace == p.Namespace && old.Name == p.Name {
			if !podmeta.Newer(old, p) {
				pods[i] = p
			}
			return pods
		}
	}
	return append(pods, p)
}

// findOrExplain calls find. If the pod does not exist, it prints to std.err the refused manifests
// that may contain the pod, since these are the usual cause.
func (c *clientFlags) findOrExplain(ctx context.Context, std stdio, cl *local.Client, name string) (*v1.Pod, error) {
	pod, err := c.find(ctx, cl, name)
	if err != nil {
		return nil, c.explained(ctx, std, name, err)
	}
	return pod, nil
}

// explained prints the refused manifests that may contain a pod with that name, and returns err. If
// name is "", it prints all refused manifests.
func (c *clientFlags) explained(ctx context.Context, std stdio, name string, err error) error {
	problems, perr := c.client().Problems(ctx)
	if perr != nil {
		return err
	}
	printProblems(std.err, slices.DeleteFunc(problems, func(p local.Problem) bool { return !mayBeOf(&p, name) }))
	return err
}

// mayBeOf reports whether a problem of a manifest may be the problem of the pod with that
// name. It may be if the problem or its file has the name, or if the problem names no object.
func mayBeOf(p *local.Problem, name string) bool {
	name = name[strings.LastIndexByte(name, '/')+1:]
	return name == "" || p.Pod == "" || strings.HasSuffix(p.Pod, "/"+name) || strings.HasPrefix(name, p.Pod[strings.LastIndexByte(p.Pod, '/')+1:]+"-") ||
		strings.HasPrefix(filepath.Base(p.File), name+".")
}

var errNoPod = errors.New("no pod")

var errPodName = errors.New("which pod? Give one name")
