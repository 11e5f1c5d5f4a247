/* W1 of routing.py without Python: `rival publish COUNT` or `rival receive ENDPOINT`; see rivals.py. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
/* What zmq.h would declare; wheels do not bring it. */
typedef struct { unsigned char _[64] __attribute__((aligned(8))); } zmq_msg_t;
void *zmq_ctx_new(void);
int zmq_ctx_term(void *), zmq_close(void *);
int zmq_bind(void *, const char *), zmq_connect(void *, const char *);
void *zmq_socket(void *, int);
int zmq_setsockopt(void *, int, const void *, size_t), zmq_getsockopt(void *, int, void *, size_t *);
int zmq_send(void *, const void *, size_t, int), zmq_recv(void *, void *, size_t, int);
int zmq_msg_init(zmq_msg_t *), zmq_msg_recv(zmq_msg_t *, void *, int), zmq_msg_close(zmq_msg_t *);
void *zmq_msg_data(zmq_msg_t *);
size_t zmq_msg_size(const zmq_msg_t *);
enum { SUB = 2, XPUB = 9, SNDMORE = 2 };
enum { SUBSCRIBE = 6, SNDHWM = 23, RCVHWM = 24, LAST_ENDPOINT = 32, NODROP = 69 };
static const char END[] = "md.end.end";

static void publish(void *socket, long count) {
    static char subjects[1000][16], payload[100], text[256];
    size_t size = sizeof text;
    int one = 1;
    for (int number = 0; number < 1000; number++)
        sprintf(subjects[number], "md.%d.%d", number / 25, number % 25);
    memset(payload, 'x', sizeof payload);
    zmq_setsockopt(socket, NODROP, &one, sizeof one);
    zmq_bind(socket, "tcp://127.0.0.1:*");
    zmq_getsockopt(socket, LAST_ENDPOINT, text, &size);
    puts(text);
    fflush(stdout);
    zmq_recv(socket, text, sizeof text, 0);
    for (long number = 0; number < count; number++) {
        const char *subject = subjects[number % 1000];
        zmq_send(socket, subject, strlen(subject), SNDMORE);
        zmq_send(socket, payload, sizeof payload, 0);
    }
    zmq_send(socket, END, strlen(END), SNDMORE);
    zmq_send(socket, "", 0, 0);
}

static void receive(void *socket, const char *endpoint) {
    struct timespec first, last;
    zmq_msg_t subject, payload;
    zmq_setsockopt(socket, SUBSCRIBE, "md.", 3);
    zmq_connect(socket, endpoint);
    for (long count = 0;; count++) {
        zmq_msg_init(&subject);
        zmq_msg_init(&payload);
        zmq_msg_recv(&subject, socket, 0);
        zmq_msg_recv(&payload, socket, 0);
        if (!count) clock_gettime(CLOCK_MONOTONIC, &first);
        if (zmq_msg_size(&subject) == strlen(END) && !memcmp(zmq_msg_data(&subject), END, strlen(END))) {
            clock_gettime(CLOCK_MONOTONIC, &last);
            printf("%ld %.9f\n", count, last.tv_sec - first.tv_sec + 1e-9 * (last.tv_nsec - first.tv_nsec));
            return;
        }
        zmq_msg_close(&subject);
        zmq_msg_close(&payload);
    }
}

int main(int argc, char **argv) {
    int publishes = !strcmp(argv[1], "publish"), unlimited = 0;
    void *context = zmq_ctx_new(), *socket = zmq_socket(context, publishes ? XPUB : SUB);
    alarm(120); /* never left behind */
    zmq_setsockopt(socket, SNDHWM, &unlimited, sizeof unlimited);
    zmq_setsockopt(socket, RCVHWM, &unlimited, sizeof unlimited);
    if (publishes) publish(socket, atol(argv[2]));
    else receive(socket, argv[2]);
    zmq_close(socket);
    return zmq_ctx_term(context);
}
