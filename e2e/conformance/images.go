package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	imageutils "k8s.io/kubernetes/test/utils/image" //nolint:depguard // nobody imports a command; these are the names that the suite asks for

	"github.com/nodewright/nodewright/internal/sampleimage"
)

// sources is the import path of the sources of the suite's images.
const sources = "k8s.io/kubernetes/test/images/"

// pluginManifests are the manifests of the suite's device plugin, in the module of Kubernetes.
const pluginManifests = "test/e2e/testing-manifests/sample-device-plugin/*.yaml"

// images builds the images that the suite uses and returns the paths of their archives.
func images(ctx context.Context, o options) ([]string, error) {
	archives, err := sampleimage.Build(ctx, o.repository, filepath.Join(o.repository, "build", "images"))
	if err != nil {
		return nil, err
	}
	dir := filepath.Join(o.out, "images")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	all, err := suiteImages(ctx, o, dir)
	if err != nil {
		return nil, err
	}
	for _, img := range all {
		img.Architecture = runtime.GOARCH
		// Two names of one image are one image to the runtime, and a container's
		// status may then bear the other name.
		img.Files = append(slices.Clip(img.Files), sampleimage.File{Path: "/etc/image", Mode: 0o644, Data: []byte(img.Name + "\n")})
		path := filepath.Join(dir, strings.NewReplacer("/", "_", ":", "_").Replace(img.Name)+".tar")
		f, err := os.Create(path)
		if err != nil {
			return nil, err
		}
		if err := sampleimage.Write(f, img); err != nil {
			return nil, err
		}
		if err := f.Close(); err != nil {
			return nil, err
		}
		archives = append(archives, path)
	}
	return archives, nil
}

func suiteImages(ctx context.Context, o options, dir string) ([]sampleimage.Image, error) {
	base, err := busyboxFiles(ctx, o, dir)
	if err != nil {
		return nil, err
	}
	agnhost, err := agnhostFiles(ctx, o, dir)
	if err != nil {
		return nil, err
	}
	nnp, err := compile(ctx, o, dir, "nonewprivs", sources+"nonewprivs")
	if err != nil {
		return nil, err
	}
	pause, err := os.ReadFile(filepath.Join(o.repository, "build", "images", "bin", "pause"))
	if err != nil {
		return nil, err
	}
	files := func(more ...sampleimage.File) []sampleimage.File { // over those of base
		below := slices.DeleteFunc(slices.Clone(base), func(b sampleimage.File) bool {
			return slices.ContainsFunc(more, func(m sampleimage.File) bool { return m.Path == b.Path })
		})
		return append(below, more...)
	}
	path := []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "GODEBUG=netdns=go"} // a static program has no resolver of C
	private, err := registryFiles("pause", "testing", sampleimage.Image{Name: "pause:testing", Architecture: runtime.GOARCH, User: "65535:65535",
		Entrypoint: []string{"/pause"}, Env: path, Files: []sampleimage.File{{Path: "/pause", Mode: 0o755, Data: pause}}})
	if err != nil {
		return nil, err
	}
	agnhost = append(agnhost, private...)
	list := []sampleimage.Image{
		{Name: imageutils.GetPauseImageName(), User: "65535:65535", Entrypoint: []string{"/pause"}, Env: path,
			Files: []sampleimage.File{{Path: "/pause", Mode: 0o755, Data: pause}}},
		{Name: imageutils.GetE2EImage(imageutils.Nonewprivs), Env: path, Cmd: []string{"nnp"},
			Files: files(sampleimage.File{Path: "/usr/local/bin/nnp", Mode: 0o6755, Data: nnp})},
		{Name: imageutils.GetE2EImage(imageutils.NonRoot), Env: path, User: "1234", Cmd: []string{"/bin/sh"}, Files: base},
	}
	for _, id := range []imageutils.ImageID{imageutils.Agnhost, imageutils.AgnhostPrev} {
		list = append(list, sampleimage.Image{Name: imageutils.GetE2EImage(id), Env: path, Entrypoint: []string{"/agnhost"}, Cmd: []string{"pause"},
			Ports: []string{"80/tcp", "8080/tcp", "8081/tcp", "9376/tcp", "5000/tcp"}, Files: files(agnhost...)})
	}
	for _, id := range []imageutils.ImageID{imageutils.BusyBox, imageutils.IpcUtils, imageutils.Perl} {
		list = append(list, sampleimage.Image{Name: imageutils.GetE2EImage(id), Env: path, Cmd: []string{"/bin/sh"}, Files: base})
	}
	list = append(list, sampleimage.Image{Name: imageutils.GetE2EImage(imageutils.Kitten), Env: path, Cmd: []string{"/bin/sh"},
		Files: files(sampleimage.File{Path: "/data.json", Mode: 0o644, Data: []byte("{\n  \"image\": \"kitten.jpg\"\n}\n")},
			sampleimage.File{Path: "/etc/os-release", Mode: 0o644, Data: []byte("NAME=\"Alpine Linux\"\n")},
			sampleimage.File{Path: "/kitten.jpg", Mode: 0o644, Data: []byte("a picture")})})
	// This one is Debian's: its shell takes programs from PATH, and not its own.
	list = append(list, sampleimage.Image{Name: imageutils.GetE2EImage(imageutils.GlibcDnsTesting), Env: path, Cmd: []string{"/bin/sh"},
		Files: files(sampleimage.File{Path: "/bin/sh", Mode: 0o777, Link: "bash"})})
	for _, id := range []imageutils.ImageID{imageutils.Nginx, imageutils.NginxNew} {
		list = append(list, sampleimage.Image{Name: imageutils.GetE2EImage(id), Env: path, Ports: []string{"80/tcp"},
			Cmd:   []string{"httpd", "-f", "-p", "80", "-h", "/usr/share/nginx/html"},
			Files: files(sampleimage.File{Path: "/usr/share/nginx/html/index.html", Mode: 0o644, Data: []byte("Welcome to nginx!\n")})})
	}
	plugin, err := compile(ctx, o, dir, "sampledeviceplugin", sources+"sample-device-plugin")
	if err != nil {
		return nil, err
	}
	names, err := manifestImages(ctx, o, pluginManifests)
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		list = append(list, sampleimage.Image{Name: name, Env: path, Entrypoint: []string{"/sampledeviceplugin", "-alsologtostderr"},
			Files: files(sampleimage.File{Path: "/sampledeviceplugin", Mode: 0o755, Data: plugin})})
	}
	if !o.mock {
		return list, nil
	}
	mock, err := mockImages(ctx, o, dir, path, base)
	return append(list, mock...), err
}

// Users and groups of all images.
const (
	passwd = "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/sbin/nologin\n"
	groups = "root:x:0:root\nnobody:x:65534:\n"
)

// busyboxFiles returns the files of the image busybox: the machine's busybox, and the other
// programs of the images of Alpine.
func busyboxFiles(ctx context.Context, o options, dir string) ([]sampleimage.File, error) {
	path, err := exec.LookPath("busybox")
	if err != nil {
		return nil, fmt.Errorf("%w: apt-get install busybox-static", err)
	}
	binary, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	bashPath, err := exec.LookPath("bash-static")
	if err != nil {
		return nil, fmt.Errorf("%w: apt-get install bash-static", err)
	}
	bash, err := os.ReadFile(bashPath)
	if err != nil {
		return nil, err
	}
	shell, err := compile(ctx, o, dir, "shell", "./conformance/shell")
	if err != nil {
		return nil, err
	}
	list, err := exec.CommandContext(ctx, path, "--list").Output()
	if err != nil {
		return nil, fmt.Errorf("busybox --list: %w", err)
	}
	extras, err := compile(ctx, o, dir, "extras", "./conformance/extras")
	if err != nil {
		return nil, err
	}
	files := []sampleimage.File{
		{Path: "/usr/bin/extras", Mode: 0o755, Data: extras},
		{Path: "/usr/bin/curl", Mode: 0o777, Link: "extras"}, {Path: "/usr/bin/nmeter", Mode: 0o777, Link: "extras"}, {Path: "/usr/bin/nc", Mode: 0o777, Link: "extras"}, {Path: "/usr/bin/dd", Mode: 0o777, Link: "extras"},
		{Path: "/bin/bash", Mode: 0o755, Data: bash}, {Path: "/bin/sh", Mode: 0o755, Data: shell},
		{Path: "/bin/busybox", Mode: 0o755, Data: binary}, {Path: "/tmp/", Mode: 0o1777}, {Path: "/root/", Mode: 0o700},
		{Path: "/etc/passwd", Mode: 0o644, Data: []byte(passwd)},
		{Path: "/etc/group", Mode: 0o644, Data: []byte(groups)},
	}
	for name := range strings.FieldsSeq(string(list)) {
		if !slices.Contains([]string{"busybox", "sh", "bash", "nc", "dd"}, name) {
			files = append(files, sampleimage.File{Path: "/bin/" + name, Mode: 0o777, Link: "/bin/busybox"})
		}
	}
	for _, dir := range []string{"/var/", "/home/", "/opt/", "/mnt/"} {
		files = append(files, sampleimage.File{Path: dir, Mode: 0o755})
	}
	return files, nil
}

// agnhostFiles returns the files of the suite's general image, agnhost.
func agnhostFiles(ctx context.Context, o options, dir string) ([]sampleimage.File, error) {
	program, err := compile(ctx, o, dir, "agnhost", sources+"agnhost")
	if err != nil {
		return nil, err
	}
	list := exec.CommandContext(ctx, "go", "list", "-f", "{{.Dir}}", sources+"agnhost")
	list.Dir = filepath.Join(o.repository, "e2e")
	source, err := list.Output()
	if err != nil {
		return nil, fmt.Errorf("go list agnhost: %w", err)
	}
	// Specs about users look for these two, and others must not have names for their
	// numbers in images of busybox.
	const user, group = "user-defined-in-image:x:1000:1000::/:/bin/sh\n", "user-defined-in-image:x:1000:\ngroup-defined-in-image:x:50000:user-defined-in-image\n"
	// Busybox's shell runs its own nc, and not the nc in PATH.
	files := []sampleimage.File{
		{Path: "/etc/passwd", Mode: 0o644, Data: []byte(passwd + user)}, {Path: "/etc/group", Mode: 0o644, Data: []byte(groups + group)},
		{Path: "/bin/sh", Mode: 0o777, Link: "bash"}, {Path: "/agnhost", Mode: 0o755, Data: program}, {Path: "/agnhost-2", Mode: 0o777, Link: "agnhost"}, {Path: "/uploads/", Mode: 0o755}}
	for _, name := range []string{"localhost.crt", "localhost.key"} {
		data, err := os.ReadFile(filepath.Join(strings.TrimSpace(string(source)), "porter", name))
		if err != nil {
			return nil, err
		}
		files = append(files, sampleimage.File{Path: "/" + name, Mode: 0o644, Data: data})
	}
	return files, nil
}

// download downloads the modules of the programs of the suite's images. It is called before the
// program is separated from the machine, since afterwards it has no access to the machine's
// network.
func download(ctx context.Context, o options) error {
	if os.Getenv(stage) != "" {
		return nil
	}
	cmd := exec.CommandContext(ctx, "go", "list", "-deps", sources+"agnhost", sources+"nonewprivs", sources+"sample-device-plugin")
	cmd.Dir = filepath.Join(o.repository, "e2e")
	var stderr strings.Builder
	cmd.Stderr = &stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("download modules of the images: %w: %s", err, stderr.String())
	}
	return nil
}

// compile builds a program of the suite's images. If the program exists and is newer than the
// file with the suite's version, it is not built again. It is linked statically with cgo: without
// cgo, much of Kubernetes would have to be compiled a second time.
func compile(ctx context.Context, o options, dir, name, source string) ([]byte, error) {
	out, module := filepath.Join(dir, name), filepath.Join(o.repository, "e2e")
	version, err := os.Stat(filepath.Join(module, "go.mod"))
	if err != nil {
		return nil, err
	}
	if built, err := os.Stat(out); err == nil && built.ModTime().After(version.ModTime()) && !strings.HasPrefix(source, ".") {
		return os.ReadFile(out)
	}
	cmd := exec.CommandContext(ctx, "go", "build", "-buildvcs=false", "-ldflags=-s -w -linkmode external -extldflags -static", "-o", out, source)
	cmd.Dir = module
	cmd.Env = append(os.Environ(), "CGO_ENABLED=1")
	if msg, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("build %s: %w: %s", name, err, msg)
	}
	return os.ReadFile(out)
}
