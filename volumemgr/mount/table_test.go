package mount

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
)

func TestParseTable(t *testing.T) {
	const text = `36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw,errors=continue
37 36 0:31 / /a\040b/c\134d\011e\012f\043 ro,nosuid shared:7 master:2 propagate_from:3 - tmpfs tmp\040fs rw,size=4k
38 36 0:32 / /proc rw - proc  rw
39 36 0:4 mnt:[4026531841] /run/ns/deleted//deleted rw unbindable - nsfs nsfs rw
`
	got, err := ParseTable([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	want := Table{
		{36, 35, 98, 0, "/mnt1", "/mnt2", []string{"rw", "noatime"}, []string{"master:1"}, "ext3", "/dev/root", []string{"rw", "errors=continue"}},
		{37, 36, 0, 31, "/", "/a b/c\\d\te\nf#", []string{"ro", "nosuid"}, []string{"shared:7", "master:2", "propagate_from:3"}, "tmpfs", "tmp fs", []string{"rw", "size=4k"}},
		{38, 36, 0, 32, "/", "/proc", []string{"rw"}, nil, "proc", "", []string{"rw"}},
		{39, 36, 0, 4, "mnt:[4026531841]", "/run/ns/deleted//deleted", []string{"rw"}, []string{"unbindable"}, "nsfs", "nsfs", []string{"rw"}},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

func TestParseTableErrors(t *testing.T) {
	const good = "36 35 98:0 / /m rw - ext3 /dev/root rw"
	for _, line := range []string{
		"garbage", "36 35 98:0 / /m rw ext3 /dev/root rw", "x 35 98:0 / /m rw - a b c", "36 x 98:0 / /m rw - a b c",
		"36 35 98 / /m rw - a b c", "36 35 98:x / /m rw - a b c", good + " more", "36 35 98:0 / /m rw - a b", strings.Repeat("x ", 5000),
	} {
		_, err := ParseTable([]byte(good + "\n" + line + "\n"))
		if err == nil || !strings.Contains(err.Error(), "line 2") || len(err.Error()) > 300 {
			t.Errorf("%.60q: error %v", line, err)
		}
	}
}

func TestAtAndBelow(t *testing.T) {
	table := Table{{ID: 1, Target: "/"}, {ID: 2, Target: "/a"}, {ID: 3, Target: "/ab"}, {ID: 4, Target: "/a/b"}, {ID: 5, Target: "/a"}}
	for _, tc := range []struct {
		path      string
		at, below string
	}{{"/", "[1]", "[2 3 4 5]"}, {"/a", "[2 5]", "[4]"}, {"/a/b", "[4]", "[]"}, {"/x", "[]", "[]"}} {
		ids := func(es []Entry) string {
			out := []int{}
			for _, e := range es {
				out = append(out, e.ID)
			}
			return fmt.Sprint(out)
		}
		if at, below := ids(table.At(tc.path)), ids(table.Below(tc.path)); at != tc.at || below != tc.below {
			t.Errorf("%s: at %s, below %s, want %s and %s", tc.path, at, below, tc.at, tc.below)
		}
	}
}

func TestParseUnder(t *testing.T) {
	var text strings.Builder
	for i, target := range []string{"/", "/a", "/a b", "/a/b", "/ab", "/a/b/c", "/a"} {
		fmt.Fprintf(&text, "%d 1 0:1 / %s rw - tmpfs tmpfs rw\n", i, escape(target))
	}
	table, err := ParseTable([]byte(text.String()))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"/", "/a", "/a b", "/a/b", "/x"} {
		got, err := parseUnder([]byte(text.String()), path)
		if err != nil || !reflect.DeepEqual(got.At(path), table.At(path)) || !reflect.DeepEqual(got.Below(path), table.Below(path)) || len(got) != len(table.At(path))+len(table.Below(path)) {
			t.Errorf("%s: %+v (%v)", path, got, err)
		}
	}
	if _, err := parseUnder([]byte("a b\n"), "/"); err == nil {
		t.Error("garbage is no error")
	}
}

// escape writes a field as the kernel does.
func escape(s string) string {
	for _, c := range `\` + " \t\n#" {
		s = strings.ReplaceAll(s, string(c), fmt.Sprintf(`\%03o`, c))
	}
	return s
}

// For any text, parsing returns an error or a table, and mount points are decoded as the kernel
// encodes them.
func FuzzParseTable(f *testing.F) {
	f.Add("36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw,errors=continue\n", "/a b")
	f.Add("2 1 0:52 / / rw shared:1 - overlay overlay rw,lowerdir=/a:/b,upperdir=/c/upper,workdir=/c/work,volatile", "/")
	f.Add("2 1 0:x / / rw - overlay overlay rw", "/")
	f.Add("\n\n", "/\\040")
	f.Add(`1 1 0:0 \ \0 \08 - \999 \ \`, "/\n#")
	f.Fuzz(func(t *testing.T, text, target string) {
		table, err := ParseTable([]byte(text))
		if err != nil && table != nil {
			t.Error("a table and an error")
		}
		line := "36 35 98:0 / " + escape(target) + " rw shared:1 - tmpfs " + escape(target) + " rw\n"
		got, err := ParseTable([]byte(line))
		if err != nil || len(got) != 1 || got[0].Target != target || got[0].Source != target {
			t.Errorf("%q became %+v (%v)", target, got, err)
		}
	})
}

func TestJoin(t *testing.T) {
	if got := Join([]string{"ro", "nosuid"}, nil, []string{"bg", "ro"}); !reflect.DeepEqual(got, []string{"bg", "nosuid", "ro"}) {
		t.Errorf("%q", got)
	}
}
