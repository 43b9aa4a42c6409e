// Keeps the stacks that threads of loom have left, for those of the next execution. loom maps one for each thread of each
// of its millions of executions, and unmaps it behind that, which takes longer than all the rest. Loaded by LD_PRELOAD
// (ci.sh); overrides mmap(2), mprotect(2) and munmap(2) for mappings with MAP_STACK, and for no others.

#include <pthread.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

// More are mapped and unmapped as ever.
enum { STACKS = 64 };

static struct stack {
    void *at;
    size_t size;
    int is_guarded;
    int is_free;
} stacks[STACKS];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

// The stack that begins at `at`; with NULL, a place for one.
static struct stack *find(void *at) {
    for (struct stack *stack = stacks; stack < stacks + STACKS; stack++)
        if (stack->at == at)
            return stack;
    return NULL;
}

static void *again(size_t size) {
    for (struct stack *stack = stacks; stack < stacks + STACKS; stack++)
        if (stack->is_free && stack->size == size) {
            stack->is_free = 0;
            return stack->at;
        }
    return NULL;
}

void *mmap(void *at, size_t size, int protection, int flags, int file, off_t offset) {
    void *mapped = NULL;
    pthread_mutex_lock(&lock);
    if (flags & MAP_STACK)
        mapped = again(size);
    if (!mapped) {
        mapped = (void *)syscall(SYS_mmap, at, size, protection, flags, file, offset);
        struct stack *place = mapped != MAP_FAILED && flags & MAP_STACK ? find(NULL) : NULL;
        if (place)
            *place = (struct stack){.at = mapped, .size = size};
    }
    pthread_mutex_unlock(&lock);
    return mapped;
}

int mprotect(void *at, size_t size, int protection) {
    int result = 0;
    pthread_mutex_lock(&lock);
    struct stack *stack = protection == PROT_NONE ? find(at) : NULL;
    if (!stack || !stack->is_guarded) {
        result = syscall(SYS_mprotect, at, size, protection);
        if (stack && result == 0)
            stack->is_guarded = 1;
    }
    pthread_mutex_unlock(&lock);
    return result;
}

int munmap(void *at, size_t size) {
    int result = 0;
    pthread_mutex_lock(&lock);
    struct stack *stack = find(at);
    if (stack && stack->size == size)
        stack->is_free = 1;
    else
        result = syscall(SYS_munmap, at, size);
    pthread_mutex_unlock(&lock);
    return result;
}
