//go:build linux

package hostdevices

import (
	"errors"
	"fmt"
	"path"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"sigs.k8s.io/yaml"
	"tags.cncf.io/container-device-interface/pkg/parser"

	"github.com/nodewright/nodewright/devicemgr"
	"github.com/nodewright/nodewright/internal/kernel"
	"github.com/nodewright/nodewright/internal/manifestguard"
	"github.com/nodewright/nodewright/internal/safefile"
)

// Settings say which devices are which resources.
type Settings struct {
	// Devices are tried in this order.
	Devices []Rule `json:"devices"`
	// CDIDirs are the directories of CDI specifications: those of the container runtime. The
	// default is /etc/cdi and /var/run/cdi.
	CDIDirs []string `json:"cdiDirs,omitempty"`
}

// Rule selects devices by exactly one of Paths, USB and CDI. Several rules may have the same
// resource.
type Rule struct {
	// Resource is the name that pods request, such as example.com/serial.
	Resource string `json:"resource"`
	// Paths are device nodes, or links to device nodes, below /dev. The last element may be a
	// pattern of path.Match: /dev/ttyUSB*. Each node is a device.
	Paths []string `json:"paths,omitempty"`
	// USB is the vendor and product of USB devices, as lsusb prints them: 046d:0825.
	USB string `json:"usb,omitempty"`
	// CDI is a kind of devices in CDI specifications, vendor/class. A pattern of path.Match for
	// their names may follow: nvidia.com/gpu=*:* are MIG devices.
	CDI string `json:"cdi,omitempty"`
}

// Limits of settings.
const (
	maxFile  = 256 << 10 // bytes
	maxRules = 256
	maxPaths = 256 // of a rule
	maxDirs  = 16  // of CDI
)

// Load reads settings from a file, as [Parse] does.
func Load(file string) (Settings, error) {
	text, err := safefile.ReadLinked(file, maxFile)
	if err != nil {
		return Settings{}, err
	}
	s, err := Parse(text)
	if err != nil {
		return Settings{}, fmt.Errorf("%s: %w", file, err)
	}
	return s, nil
}

// Parse parses settings in YAML or JSON. The error names all mistakes.
func Parse(text []byte) (Settings, error) {
	if manifestguard.MoreDocuments(text) {
		return Settings{}, errors.New("settings have several YAML documents; want one")
	}
	var s Settings
	if err := yaml.UnmarshalStrict(text, &s); err != nil {
		return Settings{}, fmt.Errorf("%w; want a list devices, of resource with paths, usb or cdi, and cdiDirs", err)
	}
	_, err := s.compile()
	return s, err
}

// rule is a valid Rule.
type rule struct {
	resource string
	selector
}

// compile returns the rules, or all mistakes.
func (s Settings) compile() ([]rule, error) {
	var errs []error
	if n := len(s.Devices); n == 0 || n > maxRules {
		errs = append(errs, fmt.Errorf("devices has %d rules; want 1 to %d", n, maxRules))
	}
	if n := len(s.CDIDirs); n > maxDirs {
		errs = append(errs, fmt.Errorf("cdiDirs has %d directories; want at most %d", n, maxDirs))
	}
	for i, dir := range s.CDIDirs {
		if !filepath.IsAbs(dir) {
			errs = append(errs, fmt.Errorf("cdiDirs[%d] is %q; want an absolute path", i, dir))
		}
	}
	var rules []rule
	for i, d := range s.Devices[:min(len(s.Devices), maxRules)] {
		at := fmt.Sprintf("devices[%d]", i)
		if err := devicemgr.CheckResource(d.Resource); err != nil {
			errs = append(errs, fmt.Errorf("%s.resource: %w", at, err))
		}
		sel, err := d.selector(at)
		rules, errs = append(rules, rule{d.Resource, sel}), append(errs, err)
	}
	return rules, errors.Join(errs...)
}

// selector compiles what the rule selects. at is the path of the rule.
func (r Rule) selector(at string) (selector, error) {
	var all []selector
	var errs []error
	if r.Paths != nil {
		sel, err := parsePaths(at+".paths", r.Paths)
		all, errs = append(all, sel), append(errs, err)
	}
	if r.USB != "" {
		sel, err := parseUSB(r.USB)
		if err != nil {
			err = fmt.Errorf("%s.usb is %.100q; want VENDOR:PRODUCT as lsusb prints them, such as 046d:0825", at, r.USB)
		}
		all, errs = append(all, sel), append(errs, err)
	}
	if r.CDI != "" {
		sel, err := parseCDI(r.CDI)
		if err != nil {
			err = fmt.Errorf("%s.cdi is %.300q: %w; want vendor/class, such as nvidia.com/gpu, or vendor/class=PATTERN", at, r.CDI, err)
		}
		all, errs = append(all, sel), append(errs, err)
	}
	if len(all) != 1 {
		return nil, errors.Join(append(errs, fmt.Errorf("%s has %d of paths, usb and cdi; want one of them", at, len(all)))...)
	}
	return all[0], errors.Join(errs...)
}

func parsePaths(at string, paths []string) (byPath, error) {
	var errs []error
	if n := len(paths); n == 0 || n > maxPaths {
		errs = append(errs, fmt.Errorf("%s has %d paths; want 1 to %d", at, n, maxPaths))
	}
	var out byPath
	for i, p := range paths[:min(len(paths), maxPaths)] {
		below, ok := strings.CutPrefix(p, "/dev/")
		dir, name := path.Split(below)
		_, err := path.Match(name, "")
		if !ok || path.Clean(p) != p || strings.ContainsAny(dir, `*?[\`) || err != nil {
			errs = append(errs, fmt.Errorf("%s[%d] is %.300q; want a path below /dev, such as /dev/ttyUSB*, with a pattern in its last element alone", at, i, p))
			continue
		}
		out = append(out, below)
	}
	return out, errors.Join(errs...)
}

var usbID = regexp.MustCompile(`^([0-9a-fA-F]{4}):([0-9a-fA-F]{4})$`)

var errFormat = errors.New("not of that format")

func parseUSB(s string) (byUSB, error) {
	m := usbID.FindStringSubmatch(s)
	if m == nil {
		return byUSB{}, errFormat
	}
	vendor, _ := strconv.ParseUint(m[1], 16, 16)
	product, _ := strconv.ParseUint(m[2], 16, 16)
	return byUSB(kernel.USBID{Vendor: uint16(vendor), Product: uint16(product)}), nil
}

func parseCDI(s string) (byCDI, error) {
	kind, pattern, ok := strings.Cut(s, "=")
	if !ok {
		pattern = "*"
	}
	vendor, class := parser.ParseQualifier(kind)
	err := errors.Join(parser.ValidateVendorName(vendor), parser.ValidateClassName(class))
	if pattern == "" {
		err = errors.Join(err, errors.New("pattern is empty"))
	}
	if _, bad := path.Match(pattern, ""); bad != nil {
		err = errors.Join(err, bad)
	}
	return byCDI{kind, pattern}, err
}
