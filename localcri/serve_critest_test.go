//go:build linux

package localcri

import (
	"archive/tar"
	"bytes"
	"context"
	"flag"
	"io"
	"log"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest"
	"golang.org/x/sys/unix"

	"github.com/nodewright/nodewright/cri/critest"
	"github.com/nodewright/nodewright/internal/sampleimage"
	"github.com/nodewright/nodewright/internal/testprogram"
	criimage "github.com/nodewright/nodewright/localcri/image"
	"github.com/nodewright/nodewright/network"
	"github.com/nodewright/nodewright/network/bridge"
)

var (
	critestPath = flag.String("critest", "", "run critest, of this path, against a runtime of this machine (root)")
	critestArgs = flag.String("critest.args", "", "further arguments of critest, separated by blanks")
	// Debian's busybox-static runs ls and others without executing them, which the
	// spec of MaskedPaths does not expect; its busybox does not.
	critestBusybox = flag.String("critest.busybox", "/bin/busybox", "the busybox that its images are made of")
	critestOCI     = flag.String("critest.runtime", "../build/bin/runc", "the OCI runtime that it is run with")
)

// TestCritest runs Kubernetes' own suite for runtimes:
//
//	go test -c -o build/bin/critest sigs.k8s.io/cri-tools/cmd/critest # in tools
//	go test -v -timeout 1h -run TestCritest ./localcri -args -critest $PWD/build/bin/critest
//
// The images that it pulls come from a registry of this test, since their own may
// be out of reach: busybox of this machine under their names. Two specs fail. "public image with
// digest" pins an image that is out of reach. "image digest in ContainerStatus mounts" wants the
// image's ID; the CRI says of image_ref that it is like the imageID of a container's status,
// which has the name and the digest.
func TestCritest(t *testing.T) {
	if *critestPath == "" {
		t.Skip("needs -critest, the path of the program")
	}
	rt, images := realRuntime(t, *critestOCI, "nwct", imagesOfCritest(t))
	socket := startServing(t, ServerConfig{Runtime: rt, Images: images, Streams: rt.Streams(), Log: zaptest.NewLogger(t, zaptest.Level(zap.WarnLevel))})
	args := append([]string{"-runtime-endpoint", "unix://" + socket, "-image-endpoint", "unix://" + socket, "-ginkgo.no-color"}, strings.Fields(*critestArgs)...)
	cmd := exec.Command(*critestPath, args...)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	if err := cmd.Run(); err != nil {
		t.Errorf("critest: %v", err)
	}
}

// realRuntime is a runtime on this machine, with a bridge of its own and images from
// a mirror.
func realRuntime(t *testing.T, path, prefix, mirror string) (*Runtime, *criimage.Store) {
	t.Helper()
	oci, err := filepath.Abs(path)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	// The root of a pod with users of its own has to reach its root file system.
	if err := os.Chmod(filepath.Dir(dir), 0o711); err != nil {
		t.Fatal(err)
	}
	state, err := os.MkdirTemp("/dev/shm", "nwc")
	if err != nil {
		t.Fatal(err)
	}
	log := zaptest.NewLogger(t, zaptest.Level(zap.WarnLevel))
	reach := criimage.Registry{Endpoint: criimage.Endpoint{PlainHTTP: true}}
	if mirror != "" {
		reach = criimage.Registry{Mirrors: []criimage.Mirror{{Host: mirror, Endpoint: reach.Endpoint}}}
	}
	images, err := criimage.New(criimage.Config{RootDir: filepath.Join(dir, "images"), Reserve: 1 << 20, Log: log, Registries: map[string]criimage.Registry{"*": reach}})
	if err != nil {
		t.Fatal(err)
	}
	plugin, err := bridge.New(bridge.Config{StateDir: filepath.Join(dir, "bridge"), Name: prefix + "0", Table: prefix, VethPrefix: prefix, Log: log})
	if err != nil {
		t.Fatal(err)
	}
	net, err := network.New(network.Config{Plugins: []network.Plugin{plugin}, StateDir: filepath.Join(dir, "network"), NetnsDir: filepath.Join(state, "netns"), Log: log})
	if err != nil {
		t.Fatal(err)
	}
	rt, err := New(Config{
		RootDir: filepath.Join(dir, "rt"), StateDir: state, Handlers: map[string]Handler{filepath.Base(oci): {Path: oci}},
		Network: net, Images: images, Reserve: 1 << 20, Log: log,
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	for _, run := range []func(context.Context) error{images.Run, net.Run, rt.Run} {
		wg.Go(func() {
			if err := run(ctx); err != nil {
				t.Error(err)
			}
		})
	}
	t.Cleanup(func() {
		if err := plugin.Reset(context.Background()); err != nil {
			t.Error(err)
		}
		cancel()
		wg.Wait()
		unmountBelow(dir, state)
		_ = os.RemoveAll(state)
	})
	return rt, images
}

// The runtime passes this repository's suite through the socket too.
func TestConformanceOfTheRealRuntime(t *testing.T) {
	const runc = "../build/bin/runc"
	if _, err := os.Stat(runc); os.Getuid() != 0 || err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal("needs root and build/bin/runc (make tools)")
		}
		t.Skip("needs root and build/bin/runc (make tools)")
	}
	archives, err := sampleimage.Build(t.Context(), "..", t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	testbox := archives[slices.IndexFunc(archives, func(a string) bool { return filepath.Base(a) == "testbox.tar" })]
	rt, images := realRuntime(t, runc, "nwcs", "")
	f, err := os.Open(testbox)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := images.Import(t.Context(), f, criimage.ImportOptions{}); err != nil {
		t.Fatal(err)
	}
	c := client(t, startServing(t, ServerConfig{Runtime: rt, Images: images, Streams: rt.Streams()}))
	reg := critest.NewRegistry(t, testbox)
	critest.Conformance(t, critest.Subject{Runtime: c, Images: c, Image: sampleimage.Testbox, Offer: reg.Offer})
}

// unmountBelow takes down what a test has left mounted.
func unmountBelow(dirs ...string) {
	mounts, _ := os.ReadFile("/proc/self/mounts")
	for line := range strings.Lines(string(mounts)) {
		target := strings.Fields(line)[1]
		for _, d := range dirs {
			if strings.HasPrefix(target, d+"/") {
				_ = unix.Unmount(target, unix.MNT_DETACH)
			}
		}
	}
}

// entry is a file of an image; another name of the file to, unless that is "".
type entry struct {
	path, to string
	mode     int64
	data     []byte
}

// imagesOfCritest serves the images that critest pulls, and returns where.
func imagesOfCritest(t *testing.T) (host string) {
	t.Helper()
	srv := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	t.Cleanup(srv.Close)
	host = strings.TrimPrefix(srv.URL, "http://")

	busybox, err := os.ReadFile(*critestBusybox)
	if err != nil {
		t.Skip("needs busybox: ", err)
	}
	list, err := exec.Command(*critestBusybox, "--list").Output()
	if err != nil {
		t.Fatal(err)
	}
	base := []entry{
		{path: "bin/busybox", mode: 0o755, data: busybox},
		{path: "etc/passwd", mode: 0o644, data: []byte("root:x:0:0:root:/root:/bin/sh\nwww-data:x:33:33::/var/www:/bin/sh\nnobody:x:65534:65534::/:/bin/false\ndefault-user:x:1000:1000::/:/bin/sh\n")},
		{path: "etc/group", mode: 0o644, data: []byte("root:x:0:\nwww-data:x:33:\ndefault-user:x:1000:\ngroup-defined-in-image:x:50000:default-user\n")},
	}
	base = append(base, librariesOf(t, *critestBusybox)...)
	for _, applet := range strings.Fields(string(list)) {
		if applet != "busybox" && applet != "httpd" {
			base = append(base, entry{path: "bin/" + applet, to: "bin/busybox"})
		}
	}
	web, err := os.ReadFile(testprogram.Build(t, "./localcri/testdata/webserver"))
	if err != nil {
		t.Fatal(err)
	}
	for _, missing := range []string{"pgrep", "ipcs"} {
		base = append(base, entry{path: "usr/bin/" + missing, mode: 0o755, data: web})
	}
	program := func(path string, mode int64) []entry {
		return append(base[:len(base):len(base)], entry{path: path, mode: mode, data: web})
	}
	path := "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
	put := func(ref string, files []entry, conf v1.Config) {
		t.Helper()
		conf.Env = append(conf.Env, path)
		push(t, host+"/"+ref, files, conf)
	}
	shell := v1.Config{Cmd: []string{"sh"}}
	const e2e, own = "e2e-test-images/", "k8s-staging-cri-tools/"
	put(e2e+"busybox:1.29-2", base, shell)
	put(e2e+"nginx:1.14-2", program("usr/sbin/nginx", 0o755), v1.Config{Cmd: []string{"nginx", "-g", "daemon off;"}, Env: []string{"PORT=80"}})
	put(own+"hostnet-nginx-"+runtime.GOARCH, program("usr/sbin/nginx", 0o755), v1.Config{Cmd: []string{"nginx"}, Env: []string{"PORT=12003"}})
	put(e2e+"httpd:2.4.39-4", program("usr/local/bin/httpd", 0o755), v1.Config{Cmd: []string{"httpd"}, Env: []string{"PORT=80"}})
	put(e2e+"nonewprivs:1.3", program("usr/local/bin/nnp", 0o4755), v1.Config{Cmd: []string{"/usr/local/bin/nnp"}})
	put("pause:3.9", base, v1.Config{Cmd: []string{"sleep", "1000000"}})
	for user, suffix := range map[string]string{"1002": "uid", "www-data": "username", "1003:1003": "uid-group", "www-data:100": "username-group"} {
		put(own+"test-image-user-"+suffix, base, v1.Config{User: user, Cmd: shell.Cmd})
	}
	put(own+"test-image-predefined-group", base, v1.Config{User: "1000", Cmd: shell.Cmd})
	for i, n := range []string{"test-image-latest", "test-image-tag:test", "test-image-tag:all", "test-image-digest", "test-image-1", "test-image-2", "test-image-3"} {
		put(own+n, append(base[:len(base):len(base)], entry{path: "number", mode: 0o644, data: []byte{byte('0' + i)}}), shell)
	}
	for _, tag := range []string{"1", "2", "3"} {
		put(own+"test-image-tags:"+tag, base, v1.Config{Cmd: []string{"top"}}) // no image of another name
	}
	return host
}

// librariesOf are the files that a program needs beside itself, none if it is
// static.
func librariesOf(t *testing.T, program string) []entry {
	t.Helper()
	out, _ := exec.Command("ldd", program).Output() // fails for one that is static
	var libraries []entry
	for line := range strings.Lines(string(out)) {
		for _, word := range strings.Fields(line) {
			if !strings.HasPrefix(word, "/") {
				continue
			}
			b, err := os.ReadFile(word)
			if err != nil {
				t.Fatal(err)
			}
			libraries = append(libraries, entry{path: strings.TrimPrefix(word, "/"), mode: 0o755, data: b})
		}
	}
	return libraries
}

func push(t *testing.T, to string, files []entry, conf v1.Config) {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, d := range []string{"bin", "dev", "etc", "home", "proc", "root", "sys", "tmp", "usr", "usr/bin", "usr/sbin", "usr/local", "usr/local/bin", "var", "var/run"} {
		mode := int64(0o755)
		if d == "tmp" || d == "var/run" {
			mode = 0o1777
		}
		_ = w.WriteHeader(&tar.Header{Name: d + "/", Typeflag: tar.TypeDir, Mode: mode})
	}
	for _, f := range files {
		h := &tar.Header{Name: f.path, Mode: f.mode, Size: int64(len(f.data)), Typeflag: tar.TypeReg}
		if f.to != "" {
			h = &tar.Header{Name: f.path, Linkname: f.to, Typeflag: tar.TypeLink, Mode: 0o755}
		}
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		_, _ = w.Write(f.data)
	}
	_ = w.Close()
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(b.Bytes())), nil })
	if err != nil {
		t.Fatal(err)
	}
	img, err := mutate.AppendLayers(empty.Image, layer)
	if err == nil {
		var file *v1.ConfigFile
		if file, err = img.ConfigFile(); err == nil {
			file = file.DeepCopy()
			file.OS, file.Architecture, file.Config = "linux", runtime.GOARCH, conf
			img, err = mutate.ConfigFile(img, file)
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	ref, err := name.ParseReference(to, name.Insecure)
	if err != nil {
		t.Fatal(err)
	}
	if err := remote.Write(ref, img); err != nil {
		t.Fatal(err)
	}
}
