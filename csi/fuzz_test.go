package csi

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"
)

// Any record is rejected or can be written again unchanged, and no path in it leads out of the
// directory.
func FuzzRecord(f *testing.F) {
	for _, s := range []string{
		`{"volumeHandle":"h","driverName":"d.example.com"}`, `{"specVolID":"v","volumeHandle":"h","driverName":"d","nodeName":"n","attachmentID":"a","volumeLifecycleMode":"Ephemeral"}`,
		`{}`, `[]`, `null`, `{"driverName":"../../x","volumeHandle":"h"}`, `{"driverName":1}`, `{"volumeHandle":"\u0000","driverName":"d"}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := parseRecord(b)
		if err != nil {
			if !errors.Is(err, ErrRecord) {
				t.Errorf("%v is no ErrRecord", err)
			}
			return
		}
		if strings.ContainsAny(r.Driver, "/\x00") || r.Driver == ".." || r.Handle == "" {
			t.Errorf("took %+v", r)
		}
		out, err := r.encode()
		if err != nil {
			t.Fatal(err)
		}
		again, err := parseRecord(out)
		if r.Volume == "" { // then nothing of a publication is kept
			r.Node, r.Attachment, r.Ephemeral = "", "", false
		}
		if err != nil || again != r {
			t.Errorf("%+v became %+v (%v)", r, again, err)
		}
	})
}

// Any answer of a driver is within limits, or an error.
func FuzzAnswers(f *testing.F) {
	for _, m := range []proto.Message{
		&spec.NodeGetInfoResponse{NodeId: "n", MaxVolumesPerNode: -1, AccessibleTopology: &spec.Topology{Segments: map[string]string{"a/b": "c"}}},
		&spec.NodeGetCapabilitiesResponse{Capabilities: []*spec.NodeServiceCapability{{Type: &spec.NodeServiceCapability_Rpc{Rpc: &spec.NodeServiceCapability_RPC{Type: 1}}}, {}}},
		&spec.NodeGetVolumeStatsResponse{Usage: []*spec.VolumeUsage{{Total: -5, Unit: 1}, {Used: 1 << 62, Unit: 2}}},
	} {
		b, err := proto.Marshal(m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		data := mem.BufferSlice{mem.SliceBuffer(b)}
		var info spec.NodeGetInfoResponse
		if answers.Unmarshal(data, &info) == nil {
			if n, err := infoOf(&info); err == nil && (n.id == "" || len(n.id) > maxNodeID || n.limit < 0 || len(n.topology) > maxSegments) {
				t.Errorf("took %+v", n)
			}
		}
		var can spec.NodeGetCapabilitiesResponse
		if answers.Unmarshal(data, &can) == nil {
			_ = abilitiesOf(&can)
		}
		var stats spec.NodeGetVolumeStatsResponse
		if answers.Unmarshal(data, &stats) == nil {
			if u := usageOf(&stats, time.Now()); min(u.Capacity, u.Used, u.Available, u.Inodes, u.InodesUsed, u.InodesFree) < -1 {
				t.Errorf("took %+v", u)
			}
		}
	})
}

// An answer that would become much more than it is, is refused.
func TestAnswersAreMeasured(t *testing.T) {
	b := []byte(strings.Repeat("\x0a\x00", answers.Fields+1)) // capabilities without content
	err := answers.Unmarshal(mem.BufferSlice{mem.SliceBuffer(b)}, &spec.NodeGetCapabilitiesResponse{})
	if err == nil || !strings.Contains(err.Error(), "too many fields") {
		t.Errorf("got %v", err)
	}
}

// A record is replaced whole or not at all, and a link in its place is not followed.
func TestRecordsAreFilesOfTheirOwn(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "v")
	r := record{Handle: "h", Driver: "d.example.com"}
	if _, err := readRecord(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got %v", err)
	}
	if err := writeRecord(dir, r); err != nil {
		t.Fatal(err)
	}
	before, err := os.Lstat(filepath.Join(dir, recordName))
	if err != nil || before.Mode() != 0o600 {
		t.Errorf("%v (%v)", before.Mode(), err)
	}
	if err := writeRecord(dir, r); err != nil {
		t.Fatal(err)
	}
	if after, err := os.Lstat(filepath.Join(dir, recordName)); err != nil || !os.SameFile(before, after) {
		t.Errorf("it was written again (%v)", err)
	}
	if err := os.Remove(filepath.Join(dir, recordName)); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/etc/passwd", filepath.Join(dir, recordName)); err != nil {
		t.Fatal(err)
	}
	if _, err := readRecord(dir); !errors.Is(err, ErrRecord) {
		t.Errorf("a link: %v", err)
	}
	if err := removeRecord(dir); err != nil {
		t.Error(err)
	}
}
