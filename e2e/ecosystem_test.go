//go:build ecosystem

package e2e_test

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nodewright/nodewright/e2e/apart"
	"github.com/nodewright/nodewright/e2e/controlplane"
	"github.com/nodewright/nodewright/internal/containerdtest"
	"github.com/nodewright/nodewright/internal/sampleimage"
	"github.com/nodewright/nodewright/internal/testprogram"
)

// An ecosystemTest is what is done with a program of others on a node.
type ecosystemTest struct {
	name  string   // as in docs/reference/ecosystem.md
	needs []string // foreignPrograms
	where []string // kinds of nodes: alone, cluster
	run   func(*ecosystemRun)
}

var (
	inCluster  = []string{"cluster"}
	everywhere = []string{"alone", "cluster"}
)

var (
	ecosystemOnly  = flag.String("ecosystem.only", "", "the tests of TestEcosystem to run, separated by commas; all of them")
	ecosystemNodes = flag.String("ecosystem.nodes", "alone-localcri,alone-containerd,cluster-localcri,cluster-containerd", "the nodes of TestEcosystem, separated by commas")
)

// Programs of others run unchanged on nodes and beside them: on a node alone and in a cluster,
// each with localcri and with containerd.
func TestEcosystem(t *testing.T) {
	only, nodes := strings.Split(*ecosystemOnly, ","), strings.Split(*ecosystemNodes, ",")
	tests := slices.DeleteFunc(slices.Concat(readers, extenders, drivers), func(s ecosystemTest) bool {
		return *ecosystemOnly != "" && !slices.Contains(only, s.name)
	})
	if os.Getenv(inApart) == "" {
		obtain(t, neededBy(tests))
	}
	dir, child := runApart(t)
	if !child {
		return
	}
	t.Setenv("PATH", filepath.Dir(program(t, "agent"))+":"+os.Getenv("PATH"))
	for _, where := range everywhere {
		for _, cri := range []string{containerdtest.LocalCRI, containerdtest.ContainerdName} {
			kind := where + "-" + cri
			if !slices.Contains(nodes, kind) {
				continue
			}
			t.Run(kind, func(t *testing.T) {
				n := newEcosystemNode(t, filepath.Join(dir, kind), where, cri)
				for _, s := range tests {
					if slices.Contains(s.where, where) {
						t.Run(s.name, func(t *testing.T) { n.run(t, s) })
					}
				}
			})
		}
	}
}

// Every test has a line in the table, and no line is of a test that is not.
func TestEcosystemTable(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "docs", "reference", "ecosystem.md"))
	if err != nil {
		t.Fatal(err)
	}
	listed := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^\|.*-ecosystem\.only ([a-z0-9-]+)'`).FindAllSubmatch(text, -1) {
		listed[string(m[1])] = true
	}
	for _, s := range slices.Concat(readers, extenders, drivers) {
		if !listed[s.name] {
			t.Errorf("ecosystem.md has no line with -ecosystem.only %s", s.name)
		}
		delete(listed, s.name)
	}
	for name := range listed {
		t.Errorf("ecosystem.md has a line for %q, which is no ecosystemTest", name)
	}
}

// An ecosystemNode is a node with the agent in the kubelet's places, apart from the machine.
type ecosystemNode struct {
	t          *testing.T // of the node
	name       string
	dir        string
	cp         *controlplane.ControlPlane // nil for a node alone
	cri        *containerdtest.Containerd // nil for the agent's own runtime
	kubeconfig string                     // of an administrator
	config     string
	flags      []string
	cmd        *exec.Cmd
	log        testprogram.Output
	images     map[string]bool // that the node has
}

// Where a node alone serves its API.
const aloneAPI = apart.Address + ":6443"

// kubeletDir is the root directory of kubelets, which the programs know.
const kubeletDir = "/var/lib/kubelet"

func newEcosystemNode(t *testing.T, dir, where, cri string) *ecosystemNode {
	t.Helper()
	requireRuntime(t, cri)
	if _, _, err := kubectlProgram(); err != nil {
		t.Skip(err)
	}
	n := &ecosystemNode{t: t, name: "edge-1", dir: dir, images: map[string]bool{}}
	n.must(os.MkdirAll(dir, 0o755))
	n.must(os.MkdirAll("/etc/kubernetes/manifests", 0o700))
	n.flags = []string{"--container-runtime-endpoint", "localcri", "--network", "bridge"}
	if cri == containerdtest.ContainerdName {
		n.cri = containerdtest.New(t, containerdtest.Options{Runtime: cri})
		n.flags = []string{"--container-runtime-endpoint", "unix://" + n.cri.Socket}
	}
	authority := ""
	if where == "cluster" {
		n.must(os.Mkdir(filepath.Join(dir, "cp"), 0o755))
		var err error
		n.cp, err = controlplane.Start(t.Context(), controlplane.Options{Program: program(t, "cluster"), Dir: filepath.Join(dir, "cp")})
		n.must(err)
		t.Cleanup(func() { _ = n.cp.Stop() })
		service, err := n.cp.Service()
		n.must(err)
		t.Cleanup(func() { _ = service.Close() })
		n.kubeconfig, err = n.cp.Kubeconfig("admin", "admin", "system:masters")
		n.must(err)
		node, err := n.cp.Kubeconfig(n.name, "system:node:"+n.name, "system:nodes")
		n.must(err)
		n.flags = append(n.flags, "--kubeconfig", node)
		authority = fmt.Sprintf("authentication: {x509: {clientCAFile: %q}}\n", n.cp.CAFile())
	} else {
		n.kubeconfig = filepath.Join(dir, "kubeconfig")
		n.flags = append(n.flags, "--local-api", aloneAPI)
	}
	n.config = filepath.Join(dir, "config.yaml")
	n.must(os.WriteFile(n.config, fmt.Appendf(nil, `apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
failCgroupV1: false
failSwapOn: false
cgroupDriver: cgroupfs
cgroupRoot: %s
enforceNodeAllocatable: []
staticPodPath: /etc/kubernetes/manifests
readOnlyPort: 10255
evictionHard: {memory.available: "1Mi", nodefs.available: "1Mi", imagefs.available: "1Mi", nodefs.inodesFree: "1"}
imageGCHighThresholdPercent: 100
nodeStatusUpdateFrequency: 2s
containerLogMaxSize: 64Ki
containerLogMaxFiles: 5
containerLogMonitorInterval: 3s
%s`, cgroupRoot(t), authority), 0o600))
	t.Cleanup(n.finish)
	n.start()
	n.load(busyboxImage(t))
	return n
}

// start starts the agent, and returns when the node is ready.
func (n *ecosystemNode) start() {
	n.t.Helper()
	n.launch()
	n.isReady()
}

func (n *ecosystemNode) launch() {
	n.t.Helper()
	n.cmd = exec.Command(program(n.t, "agent"), slices.Concat([]string{
		"run", "--leave-host", "--config", n.config, "--root-dir", kubeletDir, "--hostname-override", n.name, "--node-ip", apart.Address,
	}, n.flags)...)
	n.cmd.Stdout, n.cmd.Stderr = &n.log, &n.log
	n.must(n.cmd.Start())
}

// isReady waits until the node is ready.
func (n *ecosystemNode) isReady() {
	n.t.Helper()
	n.until(n.t, "the node is ready", func() error {
		if n.cp == nil {
			out, err := exec.Command(program(n.t, "agent"), "kubeconfig", "--root-dir", kubeletDir).Output()
			if err = errors.Join(err, os.WriteFile(n.kubeconfig, out, 0o600)); err != nil {
				return err
			}
		}
		out, err := n.kubectl(n.t.Context(), "get", "node", n.name, "-o", `jsonpath={.status.conditions[?(@.type=="Ready")].status}`).CombinedOutput()
		if err == nil && string(out) == "True" {
			return nil
		}
		return fmt.Errorf("%w: %s; the agent says:\n%s", err, out, tail(n.log.String(), 3))
	})
}

// stop ends the agent.
func (n *ecosystemNode) stop() {
	if n.cmd != nil {
		_ = n.cmd.Process.Signal(syscall.SIGTERM)
		_ = n.cmd.Wait()
		n.cmd = nil
	}
}

// restart starts the agent with other flags, which it has until the end of the test.
func (s *ecosystemRun) restart(flags []string) {
	s.Helper()
	was := s.flags
	s.Cleanup(func() {
		s.stop()
		s.flags = was
		s.start()
	})
	s.stop()
	s.flags = flags
	s.launch()
}

// finish ends the node and removes all that it has made.
func (n *ecosystemNode) finish() {
	n.stop()
	if n.t.Failed() {
		n.t.Logf("the agent said last:\n%s", tail(n.log.String(), 40))
	}
	if n.cri == nil {
		if out, err := exec.Command(program(n.t, "agent"), "reset", "--root-dir", kubeletDir, "--images").CombinedOutput(); err != nil {
			n.t.Errorf("agent reset: %v: %s", err, out)
		}
	}
	if err := containerdtest.UnmountBelow(kubeletDir); err != nil {
		n.t.Error(err)
	}
	for _, dir := range []string{kubeletDir, "/var/log/pods", "/var/log/containers", "/etc/kubernetes/manifests", "/etc/cdi"} {
		if err := os.RemoveAll(dir); err != nil {
			n.t.Error(err)
		}
	}
}

func (n *ecosystemNode) must(err error) {
	n.t.Helper()
	if err != nil {
		n.t.Fatal(err)
	}
}

func (n *ecosystemNode) kubectl(ctx context.Context, args ...string) *exec.Cmd {
	path, words, err := kubectlProgram()
	n.must(err)
	return exec.CommandContext(ctx, path, slices.Concat(words, []string{"--kubeconfig", n.kubeconfig}, args)...)
}

func (n *ecosystemNode) until(t *testing.T, what string, ask func() error) {
	t.Helper()
	for end := time.Now().Add(testTimeout); ; time.Sleep(200 * time.Millisecond) {
		err := ask()
		if err == nil {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%s: not within %v: %v", what, testTimeout, err)
		}
	}
}

// load gives an image to the runtime, once.
func (n *ecosystemNode) load(img sampleimage.Image) {
	n.t.Helper()
	if n.images[img.Name] {
		return
	}
	archive := filepath.Join(n.dir, "image.tar")
	n.archive(archive, img)
	if n.cri != nil {
		n.must(n.cri.Import(n.t.Context(), archive))
	} else if out, err := exec.Command(program(n.t, "agent"), "images", "load", "--root-dir", kubeletDir, archive).CombinedOutput(); err != nil {
		n.t.Fatalf("agent images load: %v: %s", err, out)
	}
	n.images[img.Name] = true
}

// archive writes an image to a file.
func (n *ecosystemNode) archive(path string, img sampleimage.Image) {
	n.t.Helper()
	var b bytes.Buffer
	n.must(sampleimage.Write(&b, img))
	n.must(os.WriteFile(path, b.Bytes(), 0o600))
}

// cdi is the directory of CDI specifications that the runtime reads.
func (n *ecosystemNode) cdi() string {
	if n.cri != nil {
		return filepath.Join(filepath.Dir(n.cri.Socket), "cdi")
	}
	return "/etc/cdi"
}

// An ecosystemRun is a run of a test in a namespace of a node.
type ecosystemRun struct {
	*testing.T
	*ecosystemNode
	namespace string
	dir       string // of the test
}

func (n *ecosystemNode) run(t *testing.T, s ecosystemTest) {
	for _, name := range s.needs {
		have(t, name)
	}
	st := &ecosystemRun{T: t, ecosystemNode: n, namespace: s.name, dir: filepath.Join(n.dir, s.name)}
	st.ok(os.Mkdir(st.dir, 0o755))
	st.do("create", "namespace", s.name)
	if n.cp != nil { // the controller makes it a moment later
		st.awaits("a service account", func() error { _, err := st.try("get", "serviceaccount", "default"); return err })
	}
	t.Cleanup(func() {
		if t.Failed() {
			out, _ := n.kubectl(context.Background(), "-n", s.name, "get", "pods,events", "-o", "wide").CombinedOutput()
			t.Logf("in the namespace:\n%s\nthe agent said last:\n%s", out, tail(n.log.String(), 25))
		}
		ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
		defer cancel()
		for _, args := range [][]string{{"delete", "all", "--all", "--wait=false"}, {"delete", "pods", "--all"}, {"delete", "namespace", s.name}} {
			if n.cp == nil && args[1] == "all" {
				continue
			}
			if out, err := n.kubectl(ctx, append(args, "-n", s.name)...).CombinedOutput(); err != nil {
				t.Errorf("kubectl %v: %v: %s", args, err, out)
			}
		}
	})
	s.run(st)
}

func (s *ecosystemRun) ok(err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}

func (s *ecosystemRun) awaits(what string, ask func() error) { s.Helper(); s.until(s.T, what, ask) }

// says waits until a command's output has the words.
func (s *ecosystemRun) says(what string, ask func() (string, error), words ...string) {
	s.Helper()
	s.awaits(what, func() error {
		out, err := ask()
		for _, w := range words {
			if err == nil && !strings.Contains(out, w) {
				err = fmt.Errorf("no %q in\n%s", w, out)
			}
		}
		return err
	})
}

func (s *ecosystemRun) try(args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(s.Context(), testTimeout)
	defer cancel()
	return said(s.kubectl(ctx, append([]string{"-n", s.namespace}, args...)...))
}

// do is kubectl, which must succeed.
func (s *ecosystemRun) do(args ...string) string {
	s.Helper()
	out, err := s.try(args...)
	s.ok(err)
	return out
}

// runs runs a program of others to its end. It has the node's kubeconfig.
func (s *ecosystemRun) runs(name string, args ...string) string {
	s.Helper()
	ctx, cancel := context.WithTimeout(s.Context(), testTimeout)
	defer cancel()
	out, err := said(s.command(ctx, name, args...))
	s.ok(err)
	return out
}

func (s *ecosystemRun) command(ctx context.Context, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, have(s.T, name), args...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+s.kubeconfig, "K8S_AUTH_KUBECONFIG="+s.kubeconfig, "HOME="+s.dir) // K8S_AUTH is Ansible's
	return cmd
}

// background runs a program of others until the test ends.
func (s *ecosystemRun) background(name string, args ...string) {
	s.Helper()
	log := &testprogram.Output{}
	cmd := s.command(context.WithoutCancel(s.Context()), name, args...)
	cmd.Stdout, cmd.Stderr = log, log
	s.ok(cmd.Start())
	s.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		timer := time.AfterFunc(10*time.Second, func() { _ = cmd.Process.Kill() })
		_ = cmd.Wait()
		timer.Stop()
		if s.Failed() {
			s.Logf("%s said last:\n%s", name, tail(log.String(), 30))
		}
	})
}

// said is what a program that succeeds writes to its standard output.
func said(cmd *exec.Cmd) (string, error) {
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		return out.String(), fmt.Errorf("%s: %w: %s%s", strings.Join(cmd.Args[max(0, len(cmd.Args)-6):], " "), err, tail(out.String(), 10), tail(errs.String(), 10))
	}
	return out.String(), nil
}

// apply makes what the text says, in the test's namespace.
func (s *ecosystemRun) apply(text string, args ...string) {
	s.Helper()
	cmd := s.kubectl(s.Context(), slices.Concat([]string{"-n", s.namespace, "apply", "-f", "-"}, args)...)
	cmd.Stdin = strings.NewReader(text)
	_, err := said(cmd)
	s.ok(err)
}

// ready waits for the pods of a label.
func (s *ecosystemRun) ready(app string) {
	s.Helper()
	s.says("the pods of "+app+" are ready", func() (string, error) {
		return s.try("get", "pods", "-l", "app="+app, "-o", `jsonpath={.items[*].status.conditions[?(@.type=="Ready")].status}`)
	}, "True")
}

// podOf is the name of a pod with a label.
func (s *ecosystemRun) podOf(app string) string {
	s.Helper()
	return s.do("get", "pods", "-l", "app="+app, "-o", "jsonpath={.items[0].metadata.name}")
}

// everyNode deploys a program as its own manifests do: as a DaemonSet in a cluster, and as a pod
// on a node alone, which has no controllers. spec is that of the pod, as YAML in one line or with
// an indentation of six blanks.
func (s *ecosystemRun) everyNode(app, spec string) {
	s.Helper()
	if s.cp == nil {
		spec = strings.ReplaceAll(spec, "\n      ", "\n  ")
		s.apply(fmt.Sprintf("apiVersion: v1\nkind: Pod\nmetadata: {name: %s, labels: {app: %[1]s}}\nspec:%s", app, spec))
	} else {
		s.apply(fmt.Sprintf(`apiVersion: apps/v1
kind: DaemonSet
metadata: {name: %s}
spec:
  selector: {matchLabels: {app: %[1]s}}
  template:
    metadata: {labels: {app: %[1]s}}
    spec:%s`, app, spec))
	}
	s.ready(app)
}

// image gives the node an image of a program of others, with a shell and programs of the machine
// beside it, and returns its name.
func (s *ecosystemRun) image(name string, ofMachine ...string) string {
	s.Helper()
	data, err := os.ReadFile(have(s.T, name))
	s.ok(err)
	img := busyboxImage(s.T)
	img.Name, img.Architecture = "localhost/"+strings.ReplaceAll(name, "_", "-")+":1", runtime.GOARCH
	img.Entrypoint, img.Cmd = []string{"/bin/" + name}, nil
	img.Files = append(img.Files, sampleimage.File{Path: "/bin/" + name, Mode: 0o755, Data: data})
	for to, from := range s.withLibraries(ofMachine) {
		data, err := os.ReadFile(from)
		s.ok(err)
		img.Files = append(img.Files, sampleimage.File{Path: to, Mode: 0o755, Data: data})
	}
	s.load(img)
	return img.Name
}

// withLibraries returns the files of programs of the machine and of the libraries that they load,
// by their paths in an image. A name with a path is that of a file without a place in PATH.
func (s *ecosystemRun) withLibraries(names []string) map[string]string {
	s.Helper()
	files := map[string]string{}
	for _, name := range names {
		if filepath.IsAbs(name) {
			files[name] = name
			continue
		}
		path, err := exec.LookPath(name)
		s.ok(err)
		files["/bin/"+name] = path
		libraries, err := said(exec.Command("ldd", path))
		s.ok(err)
		for _, file := range regexp.MustCompile(`/\S+`).FindAllString(libraries, -1) {
			files[file] = file
		}
	}
	return files
}

// fetch reads a URL of the node.
func (s *ecosystemRun) fetch(url string) (string, error) {
	ctx, cancel := context.WithTimeout(s.Context(), time.Minute)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return "", err
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", err
	}
	defer func() { _ = res.Body.Close() }()
	var b bytes.Buffer
	if _, err := b.ReadFrom(res.Body); err != nil {
		return "", err
	}
	if res.StatusCode != http.StatusOK {
		return "", fmt.Errorf("%s: %s: %s", url, res.Status, tail(b.String(), 3))
	}
	return b.String(), nil
}
