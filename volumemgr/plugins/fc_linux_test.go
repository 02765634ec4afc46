package plugins

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/nodewright/nodewright/volumemgr"

	"github.com/nodewright/nodewright/volumemgr/plugintest"
)

// machine is a node with hosts, as files.
type machine struct {
	t    testing.TB
	root string
	ran  []string
}

func (m *machine) file(path, text string) {
	path = filepath.Join(m.root, path)
	must(m.t, os.MkdirAll(filepath.Dir(path), 0o755))
	must(m.t, os.WriteFile(path, []byte(text), 0o600))
}

func (m *machine) link(path, to string) {
	path = filepath.Join(m.root, path)
	must(m.t, os.MkdirAll(filepath.Dir(path), 0o755))
	must(m.t, os.Symlink(to, path))
}

func (m *machine) read(path string) string {
	b, _ := os.ReadFile(filepath.Join(m.root, path))
	return string(b)
}

func (m *machine) run(_ context.Context, program string, args ...string) (string, int, error) {
	m.ran = append(m.ran, program+" "+strings.Join(args, " "))
	if program == "blkid" {
		return "TYPE=ext4\n", 0, nil
	}
	return "", 0, nil
}

func newRig(t testing.TB) (*lunPlugin, *machine, *plugintest.MountMemory, string) {
	t.Helper()
	root, err := filepath.EvalSymlinks(t.TempDir())
	must(t, err)
	m, mounts := &machine{t: t, root: filepath.Join(root, "machine")}, &plugintest.MountMemory{}
	m.file("sys/class/scsi_host/host0/scan", "")
	m.file("sys/class/scsi_host/host1/scan", "")
	p, err := newFC(fcConfig{Mounter: mounts, Root: root, Machine: m.root, Run: m.run})
	must(t, err)
	return p, m, mounts, root
}

func fcVolume(t testing.TB, p *lunPlugin, root string, s v1.FCVolumeSource) *volumemgr.Volume {
	t.Helper()
	v := &volumemgr.Volume{
		Spec: &volumemgr.Spec{Volume: &v1.Volume{Name: "v", VolumeSource: v1.VolumeSource{FC: &s}}}, Name: "v",
		Path: filepath.Join(root, "pods/a/volumes/kubernetes.io~fc/v"), StateDir: filepath.Join(root, "pods/a/plugins/kubernetes.io~fc/v"),
	}
	d, err := p.Device(v)
	must(t, err)
	v.DevicePath = d.Path
	return v
}

func TestSources(t *testing.T) {
	one := []string{"50060E801049CFD1"}
	for name, tc := range map[string]struct {
		source v1.FCVolumeSource
		ok     bool
	}{
		"WWN":            {v1.FCVolumeSource{TargetWWNs: one, Lun: new(int32(2))}, true},
		"WWN with 0x":    {v1.FCVolumeSource{TargetWWNs: []string{"0x50060e801049cfd1"}, Lun: new(int32(2))}, true},
		"WWID":           {v1.FCVolumeSource{WWIDs: []string{"3600508b400105e210000900000490000"}}, true},
		"nothing":        {v1.FCVolumeSource{}, false},
		"both":           {v1.FCVolumeSource{TargetWWNs: one, Lun: new(int32(2)), WWIDs: one}, false},
		"no LUN":         {v1.FCVolumeSource{TargetWWNs: one}, false},
		"LUN 256":        {v1.FCVolumeSource{TargetWWNs: one, Lun: new(int32(256))}, false},
		"WWN, no number": {v1.FCVolumeSource{TargetWWNs: []string{"../x"}, Lun: new(int32(2))}, false},
		"WWID, a path":   {v1.FCVolumeSource{WWIDs: []string{"../x"}}, false},
		"many":           {v1.FCVolumeSource{WWIDs: make([]string, 65)}, false},
	} {
		if _, err := check(&tc.source); (err == nil) != tc.ok {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestLinks(t *testing.T) {
	d := detail{WWNs: []string{"50060e801049cfd1"}, LUN: 1, WWIDs: []string{"3600_x"}}
	for link, want := range map[string]bool{
		"pci-0000:41:00.0-fc-0x50060e801049cfd1-lun-1": true, "fc-0x50060e801049cfd1-lun-1": true,
		"pci-0000:41:00.0-fc-0x50060e801049cfd1-lun-10": false, "pci-0000:41:00.0-fc-0x50060e801049cfd1-lun-1-part1": false,
		"pci-0000:41:00.0-fc-0x50060e801049cfd2-lun-1": false,
	} {
		if got := d.isPath(link); got != want {
			t.Errorf("%s: %t", link, got)
		}
	}
	for link, want := range map[string]bool{"scsi-3600_x": true, "scsi-3600_x-part1": false, "wwn-3600_x": false} {
		if got := d.isID(link); got != want {
			t.Errorf("%s: %t", link, got)
		}
	}
}

// A disk that was there before stays after its last volume.
func TestDiskThatWasThere(t *testing.T) {
	p, m, mounts, root := newRig(t)
	m.link("dev/disk/by-id/scsi-3600_x", "../../sdb")
	m.file("sys/block/sdb/device/delete", "")
	v := fcVolume(t, p, root, v1.FCVolumeSource{WWIDs: []string{"3600 x"}})
	must(t, p.MountDevice(t.Context(), v))
	if got := mounts.Log(); len(got) != 1 || got[0] != "mount ext4 "+m.root+"/dev/sdb "+v.DevicePath {
		t.Errorf("mounted %q", got)
	}
	_, err := p.SetUp(t.Context(), v)
	must(t, err)
	must(t, p.TearDown(t.Context(), v))
	d, err := p.Device(v)
	must(t, err)
	must(t, p.UnmountDevice(t.Context(), d))
	if m.read("sys/block/sdb/device/delete") != "" || m.read("sys/class/scsi_host/host0/scan") != "" {
		t.Error("it was deleted, or looked for")
	}
}

// A disk that appears after a scan, by two paths and with a multipath disk on top,
// goes with its last volume: the disk on top first.
func TestDiskThatAppears(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, m, mounts, root := newRig(t)
		v := fcVolume(t, p, root, v1.FCVolumeSource{TargetWWNs: []string{"50060e801049cfd1", "50060e801049cfd2"}, Lun: new(int32(0))})
		go func() {
			time.Sleep(3 * time.Second) // of synctest's
			for _, host := range []string{"host0", "host1"} {
				if scan := m.read("sys/class/scsi_host/" + host + "/scan"); scan != "- - -" {
					t.Errorf("%s was told to scan %q", host, scan)
				}
			}
			m.file("sys/block/dm-1/dm/uuid", "LVM-x")
			m.file("sys/block/dm-2/dm/uuid", "mpath-x")
			for disk, wwn := range map[string]string{"sdb": "50060e801049cfd1", "sdc": "50060e801049cfd2"} {
				m.file("sys/block/"+disk+"/device/delete", "")
				m.file("sys/block/"+disk+"/holders/dm-2", "")
				m.link("dev/disk/by-path/pci-0-fc-0x"+wwn+"-lun-0", "../../"+disk)
			}
		}()
		must(t, p.MountDevice(t.Context(), v))
		if got := mounts.Log(); len(got) != 1 || got[0] != "mount ext4 "+m.root+"/dev/dm-2 "+v.DevicePath {
			t.Errorf("mounted %q", got)
		}
		d, err := p.Device(v)
		must(t, err)
		must(t, p.UnmountDevice(t.Context(), d))
		for _, disk := range []string{"sdb", "sdc"} {
			if m.read("sys/block/"+disk+"/device/delete") != "1" {
				t.Errorf("%s stays", disk)
			}
		}
		if all := strings.Join(m.ran, "\n"); strings.Count(all, "multipath -f "+m.root+"/dev/dm-2") != 1 {
			t.Errorf("ran %s", all)
		}
	})
}

// A disk in use by another process is not deleted, and one that never appears is an error.
func TestDiskThatIsHeld(t *testing.T) {
	_, m, _, _ := newRig(t)
	m.file("sys/block/sdb/device/delete", "")
	m.file("sys/block/sdb/holders/dm-1", "")
	m.file("sys/block/dm-1/dm/uuid", "LVM-x")
	if err := (&lunMachine{Root: m.root, Run: m.run}).Remove(t.Context(), []string{"sdb"}); err == nil || m.read("sys/block/sdb/device/delete") != "" {
		t.Errorf("deleted: %v", err)
	}
	synctest.Test(t, func(t *testing.T) {
		p, _, _, root := newRig(t)
		v := fcVolume(t, p, root, v1.FCVolumeSource{WWIDs: []string{"x"}})
		if err := p.MountDevice(t.Context(), v); !errors.Is(err, volumemgr.ErrUncertain) || !strings.Contains(err.Error(), "no disk has appeared") {
			t.Error(err)
		}
		d, err := p.Device(v)
		must(t, err)
		must(t, p.UnmountDevice(t.Context(), d))
	})
}
