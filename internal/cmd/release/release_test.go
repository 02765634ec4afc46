package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nodewright/nodewright/kubeletconfig"
)

const repository = "../../.."

func sample() packaging {
	return packaging{repository: repository, arch: "arm64", binary: []byte("a program"), build: build{
		version: "1.2.3-rc.1+x", commit: "abcdef", time: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC),
		modules: []module{{path: "example.org/m", version: "v1.0.0", sum: "h1:AA=="}},
	}}
}

func TestDebianVersion(t *testing.T) {
	for version, want := range map[string]string{
		"1.2.3": "1.2.3", "1.2.3-rc.1": "1.2.3~rc.1", "0.0.0-20260102030405-abcdef012345": "0.0.0~20260102030405.abcdef012345", "1.0.0+mine": "1.0.0+mine",
	} {
		if got := debianVersion(version); got != want {
			t.Errorf("debianVersion(%q) is %q, want %q", version, got, want)
		}
	}
	if _, err := exec.LookPath("dpkg"); err != nil {
		t.Skip("the order of versions is dpkg's, which is not on this machine")
	}
	ascending := []string{"0.0.0-20260102030405-abcdef012345", "0.1.0-rc.1", "0.1.0", "0.1.1-0.20260102030405-abcdef012345", "0.1.1"}
	for i, version := range ascending[1:] {
		if err := exec.Command("dpkg", "--compare-versions", debianVersion(ascending[i]), "lt", debianVersion(version)).Run(); err != nil {
			t.Errorf("%s does not come before %s: %v", ascending[i], version, err)
		}
	}
}

// names lists a tar.gz.
func names(t *testing.T, content []byte) (all []string) {
	t.Helper()
	z, err := gzip.NewReader(bytes.NewReader(content))
	if err != nil {
		t.Fatal(err)
	}
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if err == io.EOF {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		if !h.ModTime.Equal(sample().build.time) || h.Uid != 0 || h.Gid != 0 || h.Uname != "" {
			t.Errorf("%s has a time that is not the commit's, or an owner", h.Name)
		}
		all = append(all, h.Name)
	}
}

// members takes an archive of ar apart.
func members(t *testing.T, b []byte) map[string][]byte {
	t.Helper()
	rest, ok := bytes.CutPrefix(b, []byte("!<arch>\n"))
	all := map[string][]byte{}
	for ok && len(rest) > 0 {
		head := string(rest[:60])
		size := 0
		for _, c := range strings.TrimSpace(head[48:58]) {
			size = size*10 + int(c-'0')
		}
		all[strings.TrimSpace(head[:16])] = rest[60 : 60+size]
		rest = rest[60+size+size%2:]
	}
	return all
}

func TestDebianPackage(t *testing.T) {
	p := sample()
	b, err := p.debian()
	if err != nil {
		t.Fatal(err)
	}
	m := members(t, b)
	if got := string(m["debian-binary"]); got != "2.0\n" {
		t.Errorf("debian-binary is %q", got)
	}
	if got, want := names(t, m["control.tar.gz"]), []string{"conffiles", "control", "md5sums", "postinst", "postrm", "prerm"}; !slices.Equal(got, want) {
		t.Errorf("control has %q, want %q", got, want)
	}
	data := names(t, m["data.tar.gz"])
	for _, want := range []string{"usr/bin/nodewright-agent", "usr/lib/systemd/system/nodewright-agent.service", "etc/nodewright/agent.yaml", "etc/nodewright/manifests/"} {
		if !slices.Contains(data, want) {
			t.Errorf("no %s in %q", want, data)
		}
	}
	if _, err := exec.LookPath("dpkg-deb"); err != nil {
		t.Skip("dpkg-deb, which reads the package as well, is not on this machine")
	}
	file := filepath.Join(t.TempDir(), "p.deb")
	if err := os.WriteFile(file, b, 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("dpkg-deb", "--show", file).CombinedOutput()
	if got := strings.TrimSpace(string(out)); err != nil || got != "nodewright-agent\t1.2.3~rc.1+x" {
		t.Errorf("dpkg-deb says %q, %v", got, err)
	}
}

// What is made twice is the same.
func TestSameBytes(t *testing.T) {
	for name, make := range map[string]func(*packaging) ([]byte, error){
		"archive": (*packaging).archive, "debian": (*packaging).debian, "image": (*packaging).image, "bill": (*packaging).bill,
	} {
		one, two := sample(), sample()
		a, err := make(&one)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if b, err := make(&two); err != nil || !bytes.Equal(a, b) {
			t.Errorf("%s differs from run to run: %v", name, err)
		}
	}
}

// Every module has a license, which is found.
func TestLicenses(t *testing.T) {
	b, err := licenses(t.Context(), repository, []module{{path: "github.com/nodewright/nodewright"}, {path: "std"}, {path: "go.uber.org/zap"}})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"==== go.uber.org/zap: LICENSE", "Uber Technologies", "==== Go: LICENSE", "The Go Authors"} {
		if !bytes.Contains(b, []byte(want)) {
			t.Errorf("no %q", want)
		}
	}
	if _, err := licenses(t.Context(), repository, []module{{}, {path: "example.org/none"}}); err == nil {
		t.Error("a module that is not there has licenses")
	}
}

func TestBill(t *testing.T) {
	p := sample()
	b, err := p.bill()
	if err != nil {
		t.Fatal(err)
	}
	var d spdxDocument
	if err := json.Unmarshal(b, &d); err != nil {
		t.Fatal(err)
	}
	if d.Creation.Created != "2026-01-02T03:04:05Z" || len(d.Packages) != 2 || len(d.Relationships) != 2 {
		t.Fatalf("got %+v", d)
	}
	if got := d.Packages[1]; got.Name != "example.org/m" || got.Refs[0].Locator != "pkg:golang/example.org/m@v1.0.0" || got.Comment != "go.sum h1:AA==" {
		t.Errorf("the module is %+v", got)
	}
}

// The configuration of the package is read without a word of warning.
func TestConfiguration(t *testing.T) {
	_, warnings, err := kubeletconfig.Load(kubeletconfig.Options{File: filepath.Join(repository, "packaging", "agent.yaml")})
	if err != nil || len(warnings) > 0 {
		t.Errorf("warnings %q, error %v", warnings, err)
	}
}

// systemd knows the words of the unit and of its drop-in.
func TestUnit(t *testing.T) {
	if _, err := exec.LookPath("systemd-analyze"); err != nil {
		t.Skip("systemd-analyze is not on this machine")
	}
	unit := filepath.Join(t.TempDir(), "nodewright-agent.service")
	if err := os.Mkdir(unit+".d", 0o755); err != nil {
		t.Fatal(err)
	}
	for to, from := range map[string]string{unit: "nodewright-agent.service", unit + ".d/hardening.conf": "hardening.conf"} {
		b, err := os.ReadFile(filepath.Join(repository, "packaging", from))
		if err == nil {
			err = os.WriteFile(to, bytes.ReplaceAll(b, []byte("/usr/bin/"+program), []byte("/bin/true")), 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if out, err := exec.Command("systemd-analyze", "verify", "--man=no", unit).CombinedOutput(); err != nil || bytes.Contains(out, []byte(program)) {
		t.Errorf("%v: %s", err, out)
	}
}

func TestScripts(t *testing.T) {
	for _, name := range []string{"postinst", "prerm", "postrm", "default"} {
		if out, err := exec.Command("sh", "-n", filepath.Join(repository, "packaging", name)).CombinedOutput(); err != nil {
			t.Errorf("%s: %v: %s", name, err, out)
		}
	}
}

func TestWrongFlags(t *testing.T) {
	err := checkArchitectures([]string{"amd64", "mips"})
	if err == nil || err.Error() != `--arch="mips": want some of amd64, arm64` {
		t.Errorf("got %v", err)
	}
	r := release{out: t.TempDir()}
	if err := r.make(t.Context(), repository, "no-such-commit", []string{"amd64"}); err == nil {
		t.Error("a commit that is not there is released")
	}
}
