//go:build linux

package hostdevices

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/nodewright/nodewright/internal/kernel"
)

func TestParse(t *testing.T) {
	s, err := Parse([]byte(`
devices:
- {resource: example.com/serial, paths: [/dev/ttyUSB*, /dev/serial/by-id/usb-FTDI_*]}
- {resource: example.com/camera, usb: 046D:0825}
- {resource: nvidia.com/gpu, cdi: nvidia.com/gpu}
- {resource: nvidia.com/mig, cdi: 'nvidia.com/gpu=*:*'}
cdiDirs: [/etc/cdi]
`))
	if err != nil {
		t.Fatal(err)
	}
	rules, err := s.compile()
	want := []rule{
		{"example.com/serial", byPath{"ttyUSB*", "serial/by-id/usb-FTDI_*"}},
		{"example.com/camera", byUSB(kernel.USBID{Vendor: 0x46d, Product: 0x825})},
		{"nvidia.com/gpu", byCDI{"nvidia.com/gpu", "*"}},
		{"nvidia.com/mig", byCDI{"nvidia.com/gpu", "*:*"}},
	}
	if err != nil || !reflect.DeepEqual(rules, want) {
		t.Errorf("%+v, %v; want %+v", rules, err, want)
	}
	if !reflect.DeepEqual(s.CDIDirs, []string{"/etc/cdi"}) {
		t.Errorf("directories %q", s.CDIDirs)
	}
}

// An error names the field, the value and what is allowed.
func TestParseNamesMistakes(t *testing.T) {
	paths := func(list string) string { return "devices: [{resource: example.com/x, paths: [" + list + "]}]" }
	for name, c := range map[string]struct {
		text string
		want []string
	}{
		"empty":              {"", []string{"devices has 0 rules; want 1 to 256"}},
		"too many":           {"devices: [" + strings.Repeat("{resource: example.com/x, usb: '1:1'},", maxRules+1) + "]", []string{"devices has 257 rules"}},
		"unknown field":      {"devices: [{resource: example.com/x, path: /dev/x}]", []string{`unknown field "path"`, "want a list devices, of resource with paths, usb or cdi"}},
		"no YAML":            {"devices: [", []string{"yaml"}},
		"two documents":      {"devices: []\n---\ndevices: []", []string{"settings have several YAML documents; want one"}},
		"no resource":        {"devices: [{usb: '046d:0825'}]", []string{`devices[0].resource: resource name ""`, "want domain/name"}},
		"a native resource":  {"devices: [{resource: cpu, usb: '046d:0825'}]", []string{`devices[0].resource`, `"cpu"`}},
		"nothing":            {"devices: [{resource: example.com/x}]", []string{"devices[0] has 0 of paths, usb and cdi; want one of them"}},
		"two":                {"devices: [{resource: example.com/x, paths: [/dev/x], usb: '046d:0825'}]", []string{"devices[0] has 2 of"}},
		"no paths":           {paths(""), []string{"devices[0].paths has 0 paths; want 1 to 256"}},
		"too many paths":     {paths(strings.Repeat("/dev/x,", maxPaths+1)), []string{"devices[0].paths has 257 paths"}},
		"out of /dev":        {paths("/dev/x, /etc/passwd"), []string{`devices[0].paths[1] is "/etc/passwd"; want a path below /dev`}},
		"all of /dev":        {paths("/dev/"), []string{`"/dev/"`}},
		"back":               {paths("/dev/../etc/x"), []string{`"/dev/../etc/x"`}},
		"a pattern of dirs":  {paths("/dev/*/x"), []string{`"/dev/*/x"`, "in its last element alone"}},
		"a bad pattern":      {paths("'/dev/[x'"), []string{`"/dev/[x"`}},
		"usb":                {"devices: [{resource: example.com/x, usb: '46d:825'}]", []string{`devices[0].usb is "46d:825"; want VENDOR:PRODUCT`}},
		"cdi":                {"devices: [{resource: example.com/x, cdi: gpu}]", []string{`devices[0].cdi is "gpu"`, "want vendor/class"}},
		"a cdi name":         {"devices: [{resource: example.com/x, cdi: 'v.com/gpu='}]", []string{`devices[0].cdi is "v.com/gpu="`, "pattern is empty"}},
		"a bad cdi pattern":  {"devices: [{resource: example.com/x, cdi: 'v.com/gpu=[a'}]", []string{`"v.com/gpu=[a"`, "syntax error in pattern"}},
		"a relative cdi dir": {"devices: [{resource: example.com/x, cdi: v.com/gpu}]\ncdiDirs: [cdi]", []string{`cdiDirs[0] is "cdi"; want an absolute path`}},
		"too many cdi dirs":  {"devices: [{resource: example.com/x, cdi: v.com/gpu}]\ncdiDirs: [" + strings.Repeat("/x,", maxDirs+1) + "]", []string{"cdiDirs has 17 directories"}},
		"several": {"devices: [{resource: x, usb: y}, {resource: example.com/z}]", []string{
			"devices[0].resource", "devices[0].usb", "devices[1] has 0",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Parse([]byte(c.text))
			for _, want := range c.want {
				if !strings.Contains(fmt.Sprint(err), want) {
					t.Errorf("%v; want %q in it", err, want)
				}
			}
		})
	}
}

func TestLoad(t *testing.T) {
	file := filepath.Join(t.TempDir(), "devices.yaml")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("devices: [{resource: example.com/serial, paths: [/dev/ttyUSB*]}]")
	if s, err := Load(file); err != nil || len(s.Devices) != 1 {
		t.Errorf("%+v, %v", s, err)
	}
	write("devices: []")
	if _, err := Load(file); err == nil || !strings.Contains(err.Error(), file+": devices has 0 rules") {
		t.Error(err)
	}
	write(strings.Repeat("#", maxFile+1))
	if _, err := Load(file); err == nil || !strings.Contains(err.Error(), "too large") {
		t.Error(err)
	}
}

func TestNewNamesMistakes(t *testing.T) {
	_, err := New(Config{})
	for _, want := range []string{"hostdevices: devices has 0 rules", "Config.Offer is required"} {
		if !strings.Contains(fmt.Sprint(err), want) {
			t.Errorf("%v; want %q in it", err, want)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte("devices: [{resource: example.com/x, paths: ['/dev/[a-z]*']}]"))
	f.Add([]byte("devices: [{resource: example.com/x, cdi: 'v.com/gpu=*'}, {resource: a/b, usb: 0000:ffff}]\ncdiDirs: [/x]"))
	f.Fuzz(func(t *testing.T, text []byte) {
		s, err := Parse(text)
		if err != nil {
			return
		}
		for _, r := range s.Devices {
			for _, p := range r.Paths {
				if dir, _ := filepath.Split(p); !strings.HasPrefix(filepath.Clean(dir)+"/", "/dev/") {
					t.Errorf("%q is accepted", p)
				}
			}
		}
	})
}
