package store_test

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/nodewright/nodewright/localapi/store"
)

// One file for each object, which people may edit as well: who has not seen the last
// edit is told so.
func ExampleNewDir() {
	path, err := os.MkdirTemp("", "objects")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(path)
	dir := store.NewDir(path)
	if _, err := dir.Load(context.Background()); err != nil {
		panic(err)
	}
	doc := store.Document{Name: "configmap.default.conf.yaml", Object: []byte(`{"kind":"ConfigMap","data":{"color":"blue"}}`)}
	revision, err := dir.Put(doc, "")
	if err != nil {
		panic(err)
	}
	if err := os.WriteFile(path+"/"+doc.Name, []byte("kind: ConfigMap\ndata: {color: red}\n"), 0o600); err != nil {
		panic(err)
	}
	_, err = dir.Put(doc, revision)
	fmt.Println(errors.Is(err, store.ErrConflict))
	// Output: true
}
