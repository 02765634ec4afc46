package main

import (
	"bytes"
	"crypto/md5" //nolint:gosec // dpkg compares files by MD5
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nodewright/nodewright/internal/sampleimage"
)

const maintainer = "The nodewright authors <authors@nodewright.invalid>"

// debianArchitecture returns Debian's name of one of Go's architectures. It returns "" if no
// package is made for it.
func debianArchitecture(arch string) string {
	switch arch {
	case "amd64", "arm64":
		return arch
	}
	return ""
}

// debianVersion converts a version into a form that dpkg sorts correctly. A prerelease
// follows a tilde. Hyphens are replaced, since dpkg takes the text after a hyphen as
// the package's revision.
func debianVersion(version string) string {
	version = strings.Replace(version, "-", "~", 1)
	return strings.ReplaceAll(version, "-", ".")
}

// debian returns the Debian package: the program, its unit, its configuration as
// conffiles, an empty directory for manifests, manual pages and completions.
func (p *packaging) debian() ([]byte, error) {
	const doc = "/usr/share/doc/" + program
	changelog, err := compressed(p.changelog())
	if err != nil {
		return nil, err
	}
	data := []sampleimage.File{
		{Path: "/usr/bin/" + program, Mode: 0o755, Data: p.binary},
		{Path: "/etc/nodewright/manifests/", Mode: 0o700}, // there may be Secrets in them
		{Path: "/var/lib/nodewright/", Mode: 0o751},
		{Path: doc + "/changelog.gz", Mode: 0o644, Data: changelog},
		{Path: doc + "/LICENSES", Mode: 0o644, Data: p.licenses},
	}
	data = append(data, p.manual...)
	conffiles := []string{"/etc/default/" + program, "/etc/nodewright/agent.yaml"}
	for to, from := range map[string]string{
		conffiles[0]: "packaging/default",
		conffiles[1]: "packaging/agent.yaml",
		"/usr/lib/systemd/system/" + program + ".service": "packaging/nodewright-agent.service",
		"/usr/share/lintian/overrides/" + program:         "packaging/lintian-overrides",
		doc + "/copyright":                                "packaging/copyright",
		doc + "/NEWS.md":                                  "CHANGELOG.md",
		doc + "/examples/nodewright-agent-user.service":   "packaging/nodewright-agent-user.service",
		doc + "/examples/hardening.conf":                  "packaging/hardening.conf",
		doc + "/examples/web.yaml":                        "packaging/web.yaml",
	} {
		b, err := p.read(from)
		if err != nil {
			return nil, err
		}
		data = append(data, sampleimage.File{Path: to, Mode: 0o644, Data: b})
	}
	var sums bytes.Buffer
	size := 0
	for _, f := range data {
		if !strings.HasSuffix(f.Path, "/") {
			fmt.Fprintf(&sums, "%x  %s\n", md5.Sum(f.Data), strings.TrimPrefix(f.Path, "/")) //nolint:gosec // dpkg compares files by MD5
			size += len(f.Data)
		}
	}
	control := []sampleimage.File{
		{Path: "/control", Mode: 0o644, Data: p.control(size)},
		{Path: "/conffiles", Mode: 0o644, Data: []byte(strings.Join(conffiles, "\n") + "\n")},
		{Path: "/md5sums", Mode: 0o644, Data: sorted(sums.Bytes())},
	}
	for _, script := range []string{"postinst", "prerm", "postrm"} {
		b, err := p.read("packaging/" + script)
		if err != nil {
			return nil, err
		}
		control = append(control, sampleimage.File{Path: "/" + script, Mode: 0o755, Data: b})
	}
	members := []member{{"debian-binary", []byte("2.0\n")}}
	for _, part := range []struct {
		name  string
		files []sampleimage.File
	}{{"control.tar.gz", control}, {"data.tar.gz", data}} {
		b, err := tarball(part.files, p.build.time)
		if err != nil {
			return nil, err
		}
		members = append(members, member{part.name, b})
	}
	return ar(members), nil
}

// control returns the control file of the package; size is the size of its files in
// bytes.
func (p *packaging) control(size int) []byte {
	return fmt.Appendf(nil, `Package: %s
Version: %s
Architecture: %s
Maintainer: `+maintainer+`
Installed-Size: %d
Depends: runc | crun
Recommends: nftables
Section: admin
Priority: optional
Homepage: https://github.com/nodewright/nodewright
Description: node agent for containers, with a runtime of its own
 It keeps the pods of a directory of manifests running, or those of a
 Kubernetes cluster in the kubelet's place, and takes the kubelet's flags and
 configuration.
`, program, debianVersion(p.build.version), debianArchitecture(p.arch), (size+1023)/1024)
}

// changelog returns a changelog with one entry, as Debian requires. The program's own
// changelog is in the package as NEWS.md.
func (p *packaging) changelog() []byte {
	return fmt.Appendf(nil, "%s (%s) unstable; urgency=medium\n\n  * Version %s: see NEWS.md.\n\n -- %s  %s\n",
		program, debianVersion(p.build.version), p.build.version, maintainer, p.build.time.UTC().Format(time.RFC1123Z))
}

// sorted returns lines in the order of their bytes. The last line must end with a newline.
func sorted(lines []byte) []byte {
	l := bytes.SplitAfter(lines, []byte("\n"))
	l = l[:len(l)-1]
	slices.SortFunc(l, bytes.Compare)
	return bytes.Join(l, nil)
}
