package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"debug/buildinfo"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/nodewright/nodewright/internal/agentbuild"
	"github.com/nodewright/nodewright/internal/sampleimage"
)

// program is the name of the installed agent: "agent" is too general.
const program = "nodewright-agent"

// release builds the files of a release from a clone of the repository.
type release struct {
	clone, out string
	files      []string // names of the files, in order
	manual     []sampleimage.File
}

// make builds the whole release. It replaces the output directory of an earlier release.
func (r *release) make(ctx context.Context, repository, commit string, archs []string) error {
	if err := checkArchitectures(archs); err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "release")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	r.clone = filepath.Join(dir, "clone")
	if err := clone(ctx, repository, commit, r.clone); err != nil {
		return err
	}
	if err := os.RemoveAll(r.out); err != nil {
		return err
	}
	if err := os.MkdirAll(r.out, 0o755); err != nil {
		return err
	}
	if err := r.makeManual(ctx, filepath.Join(dir, "host")); err != nil {
		return fmt.Errorf("make manual: %w", err)
	}
	for _, arch := range archs {
		if err := r.makeFor(ctx, arch, filepath.Join(dir, arch)); err != nil {
			return fmt.Errorf("%s: %w", arch, err)
		}
	}
	return r.checksums()
}

// clone clones the repository, with its tags, into the directory to and checks out the commit.
func clone(ctx context.Context, repository, commit, to string) error {
	rev, err := output(ctx, repository, "git", "rev-parse", "--verify", commit+"^{commit}")
	if err != nil {
		return err
	}
	if _, err := output(ctx, repository, "git", "clone", "--quiet", "--shared", "--no-checkout", ".", to); err != nil {
		return err
	}
	_, err = output(ctx, to, "git", "checkout", "--quiet", "--detach", strings.TrimSpace(rev))
	return err
}

// makeManual builds the program for this machine and runs it, to write the manual pages and the
// completions of shells into dir. It creates dir.
func (r *release) makeManual(ctx context.Context, dir string) error {
	pages := filepath.Join(dir, "man")
	if err := os.MkdirAll(pages, 0o755); err != nil {
		return err
	}
	path := filepath.Join(dir, program)
	if err := agentbuild.Build(ctx, r.clone, path, "GOFLAGS=-buildvcs=true -trimpath"); err != nil {
		return err
	}
	b, err := readBuild(path)
	if err != nil {
		return err
	}
	if _, err := output(ctx, dir, path, "man", pages, "--date", b.time.UTC().Format(time.DateOnly)); err != nil {
		return err
	}
	files, err := os.ReadDir(pages)
	if err != nil {
		return err
	}
	for _, f := range files {
		text, err := os.ReadFile(filepath.Join(pages, f.Name()))
		if err != nil {
			return err
		}
		if text, err = compressed(text); err != nil {
			return err
		}
		r.manual = append(r.manual, sampleimage.File{Path: "/usr/share/man/man8/" + f.Name() + ".gz", Mode: 0o644, Data: text})
	}
	for shell, to := range map[string]string{"bash": "bash-completion/completions/" + program, "zsh": "zsh/vendor-completions/_" + program, "fish": "fish/vendor_completions.d/" + program + ".fish"} {
		script, err := output(ctx, dir, path, "completion", shell)
		if err != nil {
			return err
		}
		r.manual = append(r.manual, sampleimage.File{Path: "/usr/share/" + to, Mode: 0o644, Data: []byte(script)})
	}
	slices.SortFunc(r.manual, func(a, b sampleimage.File) int { return strings.Compare(a.Path, b.Path) })
	return nil
}

// makeFor builds the files of one architecture. It creates the directory dir.
func (r *release) makeFor(ctx context.Context, arch, dir string) error {
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	path := filepath.Join(dir, program)
	err := agentbuild.Build(ctx, r.clone, path, "GOOS=linux", "GOARCH="+arch, "GOFLAGS=-buildvcs=true -trimpath", "GOAMD64=", "GOARM64=", "GOEXPERIMENT=")
	if err != nil {
		return err
	}
	b, err := readBuild(path)
	if err != nil {
		return err
	}
	binary, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	notices, err := licenses(ctx, r.clone, b.modules)
	if err != nil {
		return err
	}
	p := packaging{repository: r.clone, arch: arch, build: b, binary: binary, licenses: notices, manual: r.manual}
	base := fmt.Sprintf("%s_%s_linux_%s", program, b.version, arch)
	for _, f := range []struct {
		name string
		make func() ([]byte, error)
	}{
		{base + ".tar.gz", p.archive},
		{fmt.Sprintf("%s_%s_%s.deb", program, debianVersion(b.version), debianArchitecture(arch)), p.debian},
		{base + ".oci.tar", p.image},
		{base + ".spdx.json", p.bill},
	} {
		content, err := f.make()
		if err != nil {
			return fmt.Errorf("%s: %w", f.name, err)
		}
		if err := os.WriteFile(filepath.Join(r.out, f.name), content, 0o644); err != nil {
			return err
		}
		r.files = append(r.files, f.name)
	}
	return nil
}

// checksums writes SHA256SUMS in the format of sha256sum -c, and prints it.
func (r *release) checksums() error {
	var sums bytes.Buffer
	for _, name := range slices.Sorted(slices.Values(r.files)) {
		content, err := os.ReadFile(filepath.Join(r.out, name))
		if err != nil {
			return err
		}
		fmt.Fprintf(&sums, "%x  %s\n", sha256.Sum256(content), name)
	}
	fmt.Print(sums.String())
	return os.WriteFile(filepath.Join(r.out, "SHA256SUMS"), sums.Bytes(), 0o644)
}

// build is the build information of a program.
type build struct {
	version string    // of the main module, without the v
	commit  string    // the revision of the sources
	time    time.Time // of the commit
	modules []module  // the main module, the standard library, the dependencies
}

// A module is a Go module that the program contains. sum is its hash in go.sum; it may be "".
type module struct{ path, version, sum string }

// readBuild reads the build information of a Go program.
func readBuild(path string) (build, error) {
	info, err := buildinfo.ReadFile(path)
	if err != nil {
		return build{}, err
	}
	b := build{version: strings.TrimPrefix(info.Main.Version, "v")}
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			b.commit = s.Value
		case "vcs.time":
			if b.time, err = time.Parse(time.RFC3339, s.Value); err != nil {
				return build{}, err
			}
		}
	}
	if b.commit == "" || b.version == "" || b.version == "(devel)" {
		return build{}, errors.New("the program has no commit; want a git checkout, and git installed")
	}
	b.modules = append(b.modules, module{path: info.Main.Path, version: info.Main.Version},
		module{path: "std", version: strings.TrimPrefix(info.GoVersion, "go")})
	for _, d := range info.Deps {
		if d.Replace != nil {
			d = d.Replace
		}
		b.modules = append(b.modules, module{d.Path, d.Version, d.Sum})
	}
	return b, nil
}

// packaging makes the files of one architecture.
type packaging struct {
	repository, arch string
	build            build
	binary           []byte
	licenses         []byte             // of all components
	manual           []sampleimage.File // manual pages and completions
}

// read reads a file of the repository.
func (p *packaging) read(name string) ([]byte, error) {
	return os.ReadFile(filepath.Join(p.repository, name))
}

// archive returns the tar.gz with the program and its documents, below one
// directory.
func (p *packaging) archive() ([]byte, error) {
	dir := fmt.Sprintf("/%s-%s-%s/", program, p.build.version, p.arch)
	files := []sampleimage.File{{Path: dir + program, Mode: 0o755, Data: p.binary}, {Path: dir + "LICENSES", Mode: 0o644, Data: p.licenses}}
	for to, from := range map[string]string{
		"LICENSE":                       "LICENSE",
		"README.md":                     "README.md",
		"CHANGELOG.md":                  "CHANGELOG.md",
		"nodewright-agent.service":      "packaging/nodewright-agent.service",
		"nodewright-agent-user.service": "packaging/nodewright-agent-user.service",
		"hardening.conf":                "packaging/hardening.conf",
		"agent.yaml":                    "packaging/agent.yaml",
		"web.yaml":                      "packaging/web.yaml",
	} {
		b, err := p.read(from)
		if err != nil {
			return nil, err
		}
		files = append(files, sampleimage.File{Path: dir + to, Mode: 0o644, Data: b})
	}
	return tarball(files, p.build.time)
}

// image returns the OCI archive of an image that contains the program and the licenses.
// Its container runs as root with directories of the machine: see docs/start/install.md.
func (p *packaging) image() ([]byte, error) {
	var b bytes.Buffer
	err := sampleimage.Write(&b, sampleimage.Image{
		Name:         "nodewright.io/agent:" + strings.ReplaceAll(p.build.version, "+", "-"),
		Architecture: p.arch,
		Files:        []sampleimage.File{{Path: "/usr/bin/" + program, Mode: 0o755, Data: p.binary}, {Path: "/LICENSES", Mode: 0o644, Data: p.licenses}},
		Entrypoint:   []string{"/usr/bin/" + program},
	})
	return b.Bytes(), err
}
