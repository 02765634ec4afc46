package plugins_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodewright/nodewright/volumemgr"
	"github.com/nodewright/nodewright/volumemgr/mount"
	"github.com/nodewright/nodewright/volumemgr/plugins"
)

// settings is a plugins.ContentSource of a single ConfigMap.
type settings struct{ greeting, version string }

func (s *settings) Get(context.Context, string, string, string) (*plugins.ContentObject, error) {
	return &plugins.ContentObject{Version: s.version, Data: map[string][]byte{"greeting": []byte(s.greeting)}}, nil
}

// A ConfigMap as a directory, without an agent: it is made, follows a change, and
// goes.
func Example() {
	top, err := os.MkdirTemp("", "")
	if err != nil {
		panic(err)
	}
	defer func() { _ = os.RemoveAll(top) }()

	source := &settings{"hello", "1"}
	p, err := plugins.NewContent(plugins.ContentConfigMap, plugins.ContentConfig{Mounter: &mount.Kernel{}, Source: source})
	if err != nil {
		panic(err)
	}
	mode := int32(0o644)
	v := &volumemgr.Volume{
		Pod: &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "default", UID: "1"}},
		Spec: &volumemgr.Spec{Volume: &v1.Volume{Name: "conf", VolumeSource: v1.VolumeSource{
			ConfigMap: &v1.ConfigMapVolumeSource{LocalObjectReference: v1.LocalObjectReference{Name: "settings"}, DefaultMode: &mode},
		}}},
		UID: "1", Name: "conf", Path: filepath.Join(top, "conf"), StateDir: filepath.Join(top, "state"),
		Warn: func(string, string) {},
	}
	ctx := context.Background()
	for _, source.greeting = range []string{"hello", "good evening"} {
		r, err := p.SetUp(ctx, v)
		if err != nil {
			panic(err)
		}
		text, err := os.ReadFile(filepath.Join(r.Path, "greeting"))
		fmt.Println(string(text), err)
		v.Remount, source.version = true, "2"
	}
	fmt.Println(p.TearDown(ctx, v))
	_, err = os.Stat(v.Path)
	fmt.Println(os.IsNotExist(err))
	// Output:
	// hello <nil>
	// good evening <nil>
	// <nil>
	// true
}
