package seal_test

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/nodewright/nodewright/kubeapi/seal"
)

// A key of this machine is made at the first start. What is sealed under one name
// does not open under another.
func ExampleMachine() {
	dir, err := os.MkdirTemp("", "seal")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = os.RemoveAll(dir) }()
	s, err := seal.Machine(filepath.Join(dir, "secret.key"), nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	sealed, err := s.Seal("default/password", []byte("hunter2"))
	if err != nil {
		fmt.Println(err)
		return
	}
	plain, err := s.Unseal("default/password", sealed)
	fmt.Println(seal.Sealed(sealed), string(plain), err)
	_, err = s.Unseal("default/other", sealed)
	fmt.Println(err != nil)
	// Output:
	// true hunter2 <nil>
	// true
}
