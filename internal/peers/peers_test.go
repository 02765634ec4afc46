package peers

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http/httptest"
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

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"

	"github.com/nodewright/nodewright/internal/containerdtest"
	"github.com/nodewright/nodewright/internal/sampleimage"
)

func TestJudge(t *testing.T) {
	verdicts, err := parseVerdicts("# why\n\ncri-o | a | peer | its log\ncri-o | b | environment | no SELinux\ncontainerd | c | peer | its daemon\ncri-o | f | race | before the trap\ncri-o | g | race | before the trap\n")
	if err != nil {
		t.Fatal(err)
	}
	results, err := ParseTAP(strings.NewReader("1..7\nnot ok 1 a\n# text\nok 2 b\nnot ok 3 c\nok 4 d # skip no SELinux\nok 5 e # in 3 parts\nok 6 f\nnot ok 7 g\n"))
	if err != nil {
		t.Fatal(err)
	}
	if want := []Result{{"a", Failed}, {"b", Passed}, {"c", Failed}, {"d", Skipped}, {"e # in 3 parts", Passed}, {"f", Passed}, {"g", Failed}}; !slices.Equal(results, want) {
		t.Errorf("%v, want %v", results, want)
	}
	var table bytes.Buffer
	wrong := Judge(&table, "cri-o", results, verdicts)
	if len(wrong) != 2 || !strings.Contains(wrong[0], "b: passes") || !strings.Contains(wrong[1], "c: fails") {
		t.Errorf("%q", wrong)
	}
	if want := "ran 7, passed 3, skipped 1; failed: ours 1, peer's 2, environment's 0"; !strings.Contains(table.String(), want) {
		t.Errorf("%s, want %s", table.String(), want)
	}
	results, err = ParseGo(strings.NewReader("=== RUN   TestA\n    --- PASS: TestA/x (0.00s)\n--- FAIL: TestA (0.00s)\n--- SKIP: TestB (0.00s)\n--- PASS: TestC (1.00s)\n"))
	if want := []Result{{"TestA", Failed}, {"TestB", Skipped}, {"TestC", Passed}}; err != nil || !slices.Equal(results, want) {
		t.Errorf("%v, %v", results, err)
	}
}

func TestVerdictsAreComplete(t *testing.T) {
	if _, err := Verdicts(); err != nil {
		t.Error(err)
	}
	for _, bad := range []string{"a | b | peer", "a | b | nobody | why", "a | b | peer | w\na | b | peer | w", " | b | peer | w"} {
		if _, err := parseVerdicts(bad); err == nil {
			t.Errorf("%q is taken", bad)
		}
	}
}

// checkouts returns the paths of checkouts below PEERS, and skips without them.
func checkouts(t *testing.T, names ...string) []string {
	t.Helper()
	dir := os.Getenv("PEERS")
	if dir == "" {
		t.Skip("needs PEERS, a directory of checkouts; see the package's documentation")
	}
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	var all []string
	for _, name := range names {
		path, err := filepath.Abs(filepath.Join(dir, name))
		if err == nil {
			_, err = os.Stat(path)
		}
		if err != nil {
			t.Skip(err)
		}
		all = append(all, path)
	}
	return all
}

// program returns the path of a program of build/bin.
func program(t *testing.T, name string) string {
	t.Helper()
	path, err := filepath.Abs(filepath.Join("..", "..", "build", "bin", name))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); err != nil {
		t.Fatalf("%v: make peers builds it", err)
	}
	return path
}

func judge(t *testing.T, suite string, results []Result) {
	t.Helper()
	verdicts, err := Verdicts()
	if err != nil {
		t.Fatal(err)
	}
	if len(results) == 0 {
		t.Fatal("no test ran")
	}
	for _, w := range Judge(t.Output(), suite, results, verdicts) {
		t.Error(w)
	}
}

// criOFiles are the files of CRI-O's tests that need no more than a socket, a network of CNI
// and an OCI runtime. The others are about CRI-O's own commands, options, hooks, metrics or
// artifacts.
var criOFiles = []string{
	"ctr", "pod", "network", "restore", "exec_termination", "ctr_userns", "cdi", "namespaces", "image_volume", "image_remove", "imagefsinfo",
	"inspect", "inspecti", "runtimeconfig", "runtimeversion", "version", "shm", "shm_size", "stats", "oci_volumes", "sanity_checks", "devices",
	"cgroups", "ctr_seccomp", "logs", "image", "network_ping",
}

// TestCRIO runs CRI-O's tests, which bats runs. The program crio of this directory stands in
// for CRI-O. PEERS_FILES names the files to run, separated by blanks; all of them.
func TestCRIO(t *testing.T) {
	dirs := checkouts(t, "cri-o", "bats-core")
	tmp, err := os.MkdirTemp("", "peers")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(tmp) })
	if err := os.Chmod(tmp, 0o711); err != nil {
		t.Fatal(err)
	}
	crio, bats := filepath.Join(tmp, "test"), filepath.Join(dirs[1], "bin", "bats")
	adapt(t, filepath.Join(dirs[0], "test"), crio)
	images := criOImages(t)
	env := append(os.Environ(), "CRIO_ROOT="+dirs[0],
		"CRIO_BINARY_PATH="+program(t, "peers-crio"), "CRICTL_BINARY="+program(t, "crictl"), "COPYIMG_BINARY=/bin/true",
		"CONTAINER_CNI_PLUGIN_DIR="+filepath.Dir(program(t, "host-local")), "CONTAINER_DEFAULT_RUNTIME=runc", "CONTAINER_CGROUP_MANAGER=cgroupfs",
		"PATH="+filepath.Dir(program(t, "runc"))+":"+os.Getenv("PATH"), "PEERS_IMAGES="+images, "TMPDIR="+tmp)
	files := criOFiles
	if some := strings.Fields(os.Getenv("PEERS_FILES")); len(some) > 0 {
		files = some
	}
	for _, file := range files {
		t.Run(file, func(t *testing.T) {
			cmd := exec.CommandContext(t.Context(), bats, "--tap", file+".bats")
			cmd.Dir, cmd.Env = crio, env
			out, err := cmd.Output()
			keep(t, "cri-o-"+file, out)
			results, perr := ParseTAP(bytes.NewReader(out))
			if perr != nil || len(results) == 0 {
				t.Fatalf("%v, %v: %s", err, perr, out)
			}
			judge(t, "cri-o "+file, results)
		})
	}
}

// ofDaemon are what the files of containerd's integration tests mention that ask containerd
// itself, by its own API, its configuration or its process.
var ofDaemon = regexp.MustCompile(`containerdClient|containerdEndpoint|buildLocalCRI|RestartContainerd|newCtrdProc|downloadReleaseBinary|CRIConfig\(|criconfig|SandboxInfo\(|failpoint`)

// testName is a top-level test of a Go file.
var testName = regexp.MustCompile(`(?m)^func (Test\w+)\(t \*testing\.T\)`)

// TestContainerd runs containerd's integration tests of the CRI: all of the files that speak
// to no more than the CRI's socket. PEERS_FILES names the tests to run, separated by blanks; all
// of them.
func TestContainerd(t *testing.T) {
	dirs := checkouts(t, "containerd")
	files, err := filepath.Glob(filepath.Join(dirs[0], "integration", "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if ofDaemon.Match(b) || strings.HasSuffix(file, "main_test.go") || strings.HasSuffix(file, "_windows_test.go") {
			continue
		}
		for _, m := range testName.FindAllSubmatch(b, -1) {
			names = append(names, string(m[1]))
		}
	}
	if some := strings.Fields(os.Getenv("PEERS_FILES")); len(some) > 0 {
		names = some
	}
	socket := standIn(t, containerdImages(t))
	// The tests run in the directory of their own.
	cmd := exec.CommandContext(t.Context(), program(t, "containerd-integration"),
		"-test.v", "-test.timeout=50m", "-test.run=^("+strings.Join(names, "|")+")$", "-cri-endpoint=unix://"+socket, "-containerd-bin=none")
	cmd.Dir = filepath.Join(dirs[0], "integration")
	out, err := cmd.CombinedOutput()
	keep(t, "containerd", out)
	results, perr := ParseGo(bytes.NewReader(out))
	if perr != nil || len(results) == 0 {
		t.Fatalf("%v, %v: %s", err, perr, out)
	}
	judge(t, "containerd", results)
}

// kubectlFiles are the parts of Kubernetes' sources that kubectl's tests need.
var kubectlFiles = []string{"hack", "test/cmd", "test/fixtures", "test/e2e/testing-manifests", "third_party/forked/shell2junit"}

// TestKubectl runs kubectl's tests, of Kubernetes' sources that e2e builds with, against the
// API of an agent alone. PEERS_FILES names the scenes to run, separated by blanks; all of them.
func TestKubectl(t *testing.T) {
	checkouts(t)
	sources, err := exec.CommandContext(t.Context(), "go", "-C", filepath.Join("..", "..", "e2e"), "list", "-m", "-f", "{{.Dir}}", "k8s.io/kubernetes").Output()
	from := strings.TrimSpace(string(sources))
	if err != nil || from == "" {
		t.Skipf("needs the module k8s.io/kubernetes (go -C e2e mod download k8s.io/kubernetes): %v", err)
	}
	script, err := filepath.Abs("testcmd.sh")
	if err != nil {
		t.Fatal(err)
	}
	dir, kubectl := t.TempDir(), program(t, "peers-kubectl")
	to, results := filepath.Join(dir, "kubernetes"), filepath.Join(dir, "results")
	for _, part := range kubectlFiles {
		if err := os.CopyFS(filepath.Join(to, part), os.DirFS(filepath.Join(from, part))); err != nil {
			t.Fatal(err)
		}
	}
	// Modules have no execute bits.
	plugins := exec.CommandContext(t.Context(), "chmod", "-R", "a+x", filepath.Join(to, "test", "fixtures", "pkg", "kubectl", "plugins"))
	if err := errors.Join(os.Mkdir(results, 0o755), plugins.Run()); err != nil {
		t.Fatal(err)
	}
	config := alone(t, kubectl)
	cmd := exec.CommandContext(t.Context(), "bash", script, to, kubectl, results)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+config)
	var said bytes.Buffer
	cmd.Stderr = &said
	out, err := cmd.Output()
	keep(t, "kubectl", append(said.Bytes(), out...))
	judged, perr := ParseTAP(bytes.NewReader(out))
	if perr != nil || len(judged) == 0 {
		t.Fatalf("%v, %v: %s", err, perr, out)
	}
	judge(t, "kubectl", judged)
}

// alone runs the agent without a cluster until the test ends, and returns a file for clients
// of its API. The node has the name that kubectl's tests give theirs.
func alone(t *testing.T, kubectl string) (config string) {
	t.Helper()
	dir, err := os.MkdirTemp("", "peers")
	if err != nil {
		t.Fatal(err)
	}
	root, manifests, settings, config := filepath.Join(dir, "root"), filepath.Join(dir, "manifests"), filepath.Join(dir, "config.yaml"), filepath.Join(dir, "kubeconfig")
	text := "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nfailCgroupV1: false\nfailSwapOn: false\ncgroupsPerQOS: false\n" +
		"podLogsDir: " + filepath.Join(dir, "logs") + "\nhealthzPort: 0\nevictionHard: {memory.available: 1Mi}\nimageGCHighThresholdPercent: 100\n"
	port, err := net.Listen("tcp", "127.0.0.1:0")
	if err = errors.Join(err, os.Mkdir(manifests, 0o755), os.WriteFile(settings, []byte(text), 0o600), port.Close()); err != nil {
		t.Fatal(err)
	}
	out, err := os.Create(filepath.Join("..", "..", "build", "peers-agent.log"))
	if err != nil {
		t.Fatal(err)
	}
	agent := func(args ...string) *exec.Cmd {
		cmd := exec.CommandContext(context.WithoutCancel(t.Context()), program(t, "agent"), append(args, "--root-dir", root)...)
		cmd.Env = append(os.Environ(), "PATH="+filepath.Dir(program(t, "runc"))+":"+os.Getenv("PATH"))
		return cmd
	}
	cmd := agent("run", "--config", settings, "--pod-manifest-path", manifests, "--hostname-override", "127.0.0.1", "--local-api", port.Addr().String(),
		"--network=none", "--address", "127.0.0.1", "--port", "0", "--leave-host")
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		err := errors.Join(cmd.Process.Signal(syscall.SIGTERM), cmd.Wait(), agent("reset").Run(), out.Close(), containerdtest.UnmountBelow(dir), os.RemoveAll(dir))
		if err != nil {
			t.Error(err)
		}
	})
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(100 * time.Millisecond) {
		text, err := agent("kubeconfig").Output()
		if err == nil && os.WriteFile(config, text, 0o600) == nil && exec.CommandContext(t.Context(), kubectl, "--kubeconfig", config, "get", "nodes").Run() == nil {
			return config
		}
		if time.Now().After(deadline) {
			t.Fatalf("the agent does not serve; see %s", out.Name())
		}
	}
}

// standIn serves the runtime on a socket until the test ends, and removes what it made then.
// Images come from the registry mirror.
func standIn(t *testing.T, mirror string) (socket string) {
	t.Helper()
	// Short, since sockets' paths are; and open, for the root of pods with users of their own.
	dir, err := os.MkdirTemp("", "peers")
	if err != nil {
		t.Fatal(err)
	}
	conf := filepath.Join(dir, "net.d")
	if err := errors.Join(os.Chmod(dir, 0o711), os.Mkdir(conf, 0o755), os.WriteFile(filepath.Join(conf, "10-peers.conflist"), []byte(network), 0o600)); err != nil {
		t.Fatal(err)
	}
	socket = filepath.Join(dir, "s")
	file := filepath.Join(dir, "crio.conf")
	text := fmt.Sprintf("listen = %q\nroot = %q\nnetwork_dir = %q\nplugin_dir = %q\n", socket, filepath.Join(dir, "root"), conf, filepath.Dir(program(t, "host-local")))
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := os.Create(filepath.Join("..", "..", "build", "peers-stand-in.log"))
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), program(t, "peers-crio"), "-c", file, "-d", dir+"/none")
	cmd.Env = append(os.Environ(), "PEERS_MIRROR="+mirror, "PATH="+filepath.Dir(program(t, "runc"))+":"+os.Getenv("PATH"))
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	crictl := func(args ...string) error {
		return exec.CommandContext(context.WithoutCancel(t.Context()), program(t, "crictl"), append([]string{"-r", "unix://" + socket, "-i", "unix://" + socket}, args...)...).Run()
	}
	t.Cleanup(func() {
		err := errors.Join(crictl("rmp", "-a", "-f"), cmd.Process.Signal(syscall.SIGTERM), cmd.Wait(), out.Close(), containerdtest.UnmountBelow(dir), os.RemoveAll(dir))
		if err != nil {
			t.Error(err)
		}
	})
	for deadline := time.Now().Add(time.Minute); crictl("info") != nil; time.Sleep(100 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("the stand-in does not serve; see %s", out.Name())
		}
	}
	return socket
}

// network is a bridge of CNI's for the pods of tests.
const network = `{"cniVersion": "1.0.0", "name": "peers", "plugins": [{"type": "bridge", "bridge": "peers0", "isGateway": true, "ipMasq": true,
"ipam": {"type": "host-local", "ranges": [[{"subnet": "10.87.0.0/16"}], [{"subnet": "1100:87::/64"}]], "routes": [{"dst": "0.0.0.0/0"}, {"dst": "::/0"}]}}, {"type": "portmap", "capabilities": {"portMappings": true}}]}`

// containerdImages serves the images that containerd's tests pull, and returns the host.
func containerdImages(t *testing.T) (host string) {
	t.Helper()
	small := ofBusybox(t)
	for i := range small {
		if small[i].Path == "/etc/group" { // as in the image busybox
			small[i].Data = []byte("root:x:0:\ndaemon:x:1:\nwheel:x:10:root\nnobody:x:65534:\n")
		}
	}
	with := func(more ...sampleimage.File) []sampleimage.File {
		return append(small[:len(small):len(small)], more...)
	}
	shell := v1.Config{Cmd: []string{"sh"}}
	return serve(t, map[string]image{
		"pause:3.10.2":             {small, v1.Config{Entrypoint: []string{"/bin/sleep", "1000000"}, User: "65535:65535"}},
		"containerd/busybox:1.36":  {small, shell},
		"containerd/alpine:3.14.0": {small, shell},
		"containerd/nginx:1.27.0":  {small, v1.Config{Cmd: []string{"/bin/sleep", "1000000"}}},
		"containerd/volume-copy-up:2.2": {with(
			sampleimage.File{Path: "/test_dir/test_file", Mode: 0o644, Data: []byte("test_content\n")},
			sampleimage.File{Path: "/:colon_prefixed/colon_prefixed_file", Mode: 0o644, Data: []byte("test_content\n")},
			sampleimage.File{Path: "/C:/weird_test_dir/weird_test_file", Mode: 0o644, Data: []byte("test_content\n")},
		), v1.Config{Cmd: shell.Cmd, Volumes: map[string]struct{}{"/test_dir": {}, "/:colon_prefixed": {}, "/C:/weird_test_dir": {}}}},
	})
}

// image is what an image has: the files of its one layer and its configuration.
type image struct {
	files []sampleimage.File
	conf  v1.Config
}

// serve serves images from a registry of this test, by their names without the registry.
func serve(t *testing.T, images map[string]image) (host string) {
	t.Helper()
	srv := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	t.Cleanup(srv.Close)
	host = strings.TrimPrefix(srv.URL, "http://")
	for ref, img := range images {
		tag, err := name.NewTag(host+"/"+ref, name.Insecure)
		if err == nil {
			err = remote.Write(tag, img.build(t))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return host
}

// build makes the image.
func (img image) build(t *testing.T) v1.Image {
	t.Helper()
	var b bytes.Buffer
	if err := sampleimage.Tar(&b, img.files, time.Unix(0, 0)); err != nil {
		t.Fatal(err)
	}
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(b.Bytes())), nil })
	if err != nil {
		t.Fatal(err)
	}
	made, err := mutate.AppendLayers(empty.Image, layer)
	if err != nil {
		t.Fatal(err)
	}
	conf, err := made.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	conf.OS, conf.Architecture, conf.Config = "linux", runtime.GOARCH, img.conf
	conf.Config.Env = []string{searchPath}
	if made, err = mutate.ConfigFile(made, conf); err != nil {
		t.Fatal(err)
	}
	return made
}

// searchPath is the environment of images.
const searchPath = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// adapt copies CRI-O's tests, with two changes. Their sandboxes have a cgroup of systemd's,
// which this runtime refuses without systemd; the copies have one of the same name without
// systemd's ending. And the root of a pod with users of its own can pass their directories.
func adapt(t *testing.T, from, to string) {
	t.Helper()
	if err := os.CopyFS(to, os.DirFS(from)); err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(to, "testdata", "*.json"))
	if err != nil {
		t.Fatal(err)
	}
	change := strings.NewReplacer(`"pod_123-456.slice"`, `"/pod_123-456"`, `TESTDIR=$(mktemp -d)`, `TESTDIR=$(mktemp -d) && chmod 711 "$TESTDIR"`)
	for _, name := range append(files, filepath.Join(to, "helpers.bash")) {
		b, err := os.ReadFile(name)
		if err == nil {
			err = os.WriteFile(name, []byte(change.Replace(string(b))), 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// keep writes the output of a suite to build/peers.
func keep(t *testing.T, name string, out []byte) {
	t.Helper()
	dir := filepath.Join("..", "..", "build", "peers")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, name+".txt"), out, 0o644); err != nil {
		t.Fatal(err)
	}
}

// criOImages makes the images that CRI-O's tests name.
func criOImages(t *testing.T) string {
	t.Helper()
	files := append(ofBusybox(t),
		sampleimage.File{Path: "/usr/local/bin/docker-entrypoint.sh", Mode: 0o755, Data: []byte("#!/bin/sh\nexec \"$@\"\n")},
		sampleimage.File{Path: "/usr/local/bin/redis-server", Mode: 0o755, Data: []byte("#!/bin/sh\ntrap exit TERM\necho Ready to accept connections\nwhile :; do sleep 1; done\n")},
	)
	return write(t, map[string]image{
		"registry.k8s.io/pause:3.10.1":       {files, v1.Config{Entrypoint: []string{"/bin/sleep", "1000000"}, User: "65535:65535"}},
		"quay.io/crio/fedora-crio-ci:latest": {files, v1.Config{Cmd: []string{"/bin/bash"}, Volumes: map[string]struct{}{"/imagevolume": {}}}},
		"quay.io/crio/hello-wasm:latest":     {files, v1.Config{Entrypoint: []string{"/hello.wasm"}}},
	})
}

// ofBusybox returns the files of a small system: the static busybox and bash of this machine.
func ofBusybox(t *testing.T) []sampleimage.File {
	t.Helper()
	busybox, err := os.ReadFile("/bin/busybox")
	if err != nil {
		t.Skipf("needs the package busybox-static: %v", err)
	}
	bash, err := os.ReadFile("/usr/bin/bash-static")
	if err != nil {
		t.Skipf("needs the package bash-static: %v", err)
	}
	applets, err := exec.CommandContext(t.Context(), "/bin/busybox", "--list").Output()
	if err != nil {
		t.Fatal(err)
	}
	files := []sampleimage.File{
		{Path: "/bin/busybox", Mode: 0o755, Data: busybox}, {Path: "/bin/bash", Mode: 0o755, Data: bash},
		{Path: "/tmp/", Mode: 0o1777}, {Path: "/root/", Mode: 0o700}, {Path: "/var/tmp/", Mode: 0o1777}, {Path: "/usr/bin/", Mode: 0o755}, {Path: "/usr/sbin/", Mode: 0o755},
		{Path: "/etc/passwd", Mode: 0o644, Data: []byte("root:x:0:0:root:/root:/bin/sh\ndaemon:x:1:1:daemon:/usr/sbin:/bin/false\nnobody:x:65534:65534:nobody:/:/bin/false\nredis:x:993:990:redis:/:/bin/false\n")},
		{Path: "/etc/group", Mode: 0o644, Data: []byte("root:x:0:root\ndaemon:x:1:root,bin,daemon\nwheel:x:10:root,redis\nnobody:x:65534:\nredis:x:990:\n")},
	}
	for name := range strings.FieldsSeq(string(applets)) {
		if name != "busybox" && name != "bash" {
			files = append(files, sampleimage.File{Path: "/bin/" + name, Link: "busybox"}, sampleimage.File{Path: "/usr/bin/" + name, Link: "/bin/busybox"})
		}
	}
	return files
}

// write writes archives of images, which have these names, into a directory.
func write(t *testing.T, images map[string]image) (dir string) {
	t.Helper()
	dir = t.TempDir()
	for ref, img := range images {
		tag, err := name.NewTag(ref)
		if err == nil {
			err = tarball.WriteToFile(filepath.Join(dir, strings.ReplaceAll(ref, "/", "_")+".tar"), tag, img.build(t))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return dir
}
