/*
 * published.c - see published.h. Variants:
 *
 *   apam/delays        the largest delay; by epoch. AllCNN on CIFAR-10, alpha 1e-4, batches of 100
 *   apam/speed         dataset and method; hours of one epoch by workers. Batches of 80 (CINIC-10) and 100 (ImageNet32).
 *                      The published time of one synchronous worker is that of one asynchronous worker
 *   apam/accuracy      dataset and workers; by epoch. Training accuracy on augmented images
 *   apam/mnist-lenet5  by workers, after 200 epochs; seconds of the whole run
 *   apam/logit         rcv1, by threads, after 100 epochs of batches of 64; seconds of the whole run
 *
 * Curves of figures were read from their vector drawings.
 */
#include "cli/published.h"

#include <stddef.h>
#include <string.h>

#define FIGURE_9  "APAM, figure 9"
#define FIGURE_10 "APAM, figure 10"
#define FIGURE_11 "APAM, figure 11"
#define FIGURE_12 "APAM, figure 12"
#define LENET5    "APAM, README of the C++ program"
#define LOGIT     "APAM, README of the OpenMP program"

static const nw_published rows[] = {
    {"apam/delays",
     "0",
     "test_top1",
     FIGURE_9,
     10,
     {1, 5, 10, 20, 50, 100, 150, 200, 300, 400},
     {59.27, 76.26, 81.41, 85.67, 87.57, 88.16, 88.29, 88.29, 88.86, 89.06}},
    {"apam/delays",
     "5",
     "test_top1",
     FIGURE_9,
     10,
     {1, 5, 10, 20, 50, 100, 150, 200, 300, 400},
     {52.66, 75.6, 81.86, 85.59, 88.6, 88.91, 89.11, 88.79, 89.23, 89.27}},
    {"apam/delays",
     "10",
     "test_top1",
     FIGURE_9,
     10,
     {1, 5, 10, 20, 50, 100, 150, 200, 300, 400},
     {40.17, 67.57, 79.28, 85.53, 88.51, 89.52, 89.13, 89.95, 89.27, 89.6}},
    {"apam/delays",
     "20",
     "test_top1",
     FIGURE_9,
     10,
     {1, 5, 10, 20, 50, 100, 150, 200, 300, 400},
     {41.77, 59.82, 70.93, 81.5, 87.79, 88.6, 89.76, 89.66, 88.84, 89.2}},
    {"apam/delays",
     "50",
     "test_top1",
     FIGURE_9,
     10,
     {1, 5, 10, 20, 50, 100, 150, 200, 300, 400},
     {35.35, 41.22, 49.31, 70.32, 84.82, 88.74, 89.19, 89.57, 89.33, 89.34}},
    {"apam/delays",
     "100",
     "test_top1",
     FIGURE_9,
     10,
     {1, 5, 10, 20, 50, 100, 150, 200, 300, 400},
     {32.79, 37.78, 47.34, 56.2, 77.21, 86.47, 88.0, 87.69, 89.17, 88.51}},
    {"apam/delays",
     "200",
     "test_top1",
     FIGURE_9,
     10,
     {1, 5, 10, 20, 50, 100, 150, 200, 300, 400},
     {26.81, 34.08, 38.3, 45.84, 65.83, 80.27, 85.83, 87.05, 86.17, 87.42}},
    {"apam/delays",
     "400",
     "test_top1",
     FIGURE_9,
     10,
     {1, 5, 10, 20, 50, 100, 150, 200, 300, 400},
     {27.77, 30.3, 36.25, 42.54, 57.94, 74.47, 80.04, 84.59, 87.15, 87.99}},
    {"apam/delays", "0", "train_top1", FIGURE_9, 4, {50, 100, 200, 400}, {98.05, 99.73, 99.93, 99.99}},
    {"apam/delays", "5", "train_top1", FIGURE_9, 4, {50, 100, 200, 400}, {97.93, 99.76, 99.96, 99.99}},
    {"apam/delays", "10", "train_top1", FIGURE_9, 4, {50, 100, 200, 400}, {96.88, 99.51, 99.95, 99.98}},
    {"apam/delays", "20", "train_top1", FIGURE_9, 4, {50, 100, 200, 400}, {95.33, 98.95, 99.97, 99.99}},
    {"apam/delays", "50", "train_top1", FIGURE_9, 4, {50, 100, 200, 400}, {89.96, 97.34, 99.9, 99.97}},
    {"apam/delays", "100", "train_top1", FIGURE_9, 4, {50, 100, 200, 400}, {80.94, 93.63, 98.67, 99.97}},
    {"apam/delays", "200", "train_top1", FIGURE_9, 4, {50, 100, 200, 400}, {68.0, 84.58, 97.8, 99.97}},
    {"apam/delays", "400", "train_top1", FIGURE_9, 4, {50, 100, 200, 400}, {58.16, 75.65, 91.79, 99.84}},

    {"apam/speed", "cinic10 async", "hours", FIGURE_10, 4, {1, 5, 10, 20}, {1.7937, 0.3935, 0.2451, 0.1797}},
    {"apam/speed", "cinic10 sync", "hours", FIGURE_10, 4, {1, 5, 10, 20}, {1.7937, 0.6886, 0.7749, 1.0776}},
    {"apam/speed", "imagenet32 async", "hours", FIGURE_10, 4, {1, 5, 10, 20}, {24.482, 5.31, 3.271, 2.197}},
    {"apam/speed", "imagenet32 sync", "hours", FIGURE_10, 4, {1, 5, 10, 20}, {24.482, 6.57, 5.686, 6.202}},

    {"apam/accuracy",
     "cinic10 1",
     "test_top1",
     FIGURE_11,
     7,
     {1, 10, 20, 50, 100, 150, 200},
     {61.65, 81.59, 83.72, 85.28, 85.98, 86.21, 86.22}},
    {"apam/accuracy",
     "cinic10 2",
     "test_top1",
     FIGURE_11,
     7,
     {1, 10, 20, 50, 100, 150, 200},
     {61.88, 80.9, 83.37, 85.42, 86.08, 86.28, 86.39}},
    {"apam/accuracy",
     "cinic10 5",
     "test_top1",
     FIGURE_11,
     7,
     {1, 10, 20, 50, 100, 150, 200},
     {55.93, 81.13, 83.58, 85.45, 85.99, 86.16, 86.42}},
    {"apam/accuracy",
     "cinic10 10",
     "test_top1",
     FIGURE_11,
     7,
     {1, 10, 20, 50, 100, 150, 200},
     {46.13, 78.2, 82.6, 85.14, 85.54, 86.02, 86.24}},
    {"apam/accuracy", "cinic10 1", "train_top1", FIGURE_11, 4, {10, 50, 100, 200}, {84.04, 96.75, 99.12, 99.7}},
    {"apam/accuracy", "cinic10 2", "train_top1", FIGURE_11, 4, {10, 50, 100, 200}, {83.57, 96.53, 99.15, 99.68}},
    {"apam/accuracy", "cinic10 5", "train_top1", FIGURE_11, 4, {10, 50, 100, 200}, {83.16, 96.57, 98.95, 99.73}},
    {"apam/accuracy", "cinic10 10", "train_top1", FIGURE_11, 4, {10, 50, 100, 200}, {79.6, 95.38, 98.73, 99.69}},
    {"apam/accuracy",
     "imagenet32 1",
     "test_top1",
     FIGURE_12,
     6,
     {1, 2, 10, 20, 30, 40},
     {22.21, 32.84, 48.48, 50.79, 50.51, 50.58}},
    {"apam/accuracy",
     "imagenet32 2",
     "test_top1",
     FIGURE_12,
     6,
     {1, 2, 10, 20, 30, 40},
     {20.88, 32.02, 48.08, 50.36, 50.39, 50.17}},
    {"apam/accuracy",
     "imagenet32 5",
     "test_top1",
     FIGURE_12,
     6,
     {1, 2, 10, 20, 30, 40},
     {17.86, 30.2, 47.57, 49.52, 49.76, 49.69}},
    {"apam/accuracy",
     "imagenet32 10",
     "test_top1",
     FIGURE_12,
     6,
     {1, 2, 10, 20, 30, 40},
     {10.22, 24.38, 45.51, 48.54, 48.97, 48.87}},
    {"apam/accuracy", "imagenet32 1", "test_top5", FIGURE_12, 3, {10, 20, 40}, {73.05, 75.08, 74.6}},
    {"apam/accuracy", "imagenet32 2", "test_top5", FIGURE_12, 3, {10, 20, 40}, {72.7, 74.46, 74.4}},
    {"apam/accuracy", "imagenet32 5", "test_top5", FIGURE_12, 3, {10, 20, 40}, {72.32, 73.92, 73.91}},
    {"apam/accuracy", "imagenet32 10", "test_top5", FIGURE_12, 3, {10, 20, 40}, {70.47, 73.03, 73.17}},
    {"apam/accuracy", "imagenet32 1", "train_top1", FIGURE_12, 1, {40}, {72.75}},
    {"apam/accuracy", "imagenet32 2", "train_top1", FIGURE_12, 1, {40}, {72.0}},
    {"apam/accuracy", "imagenet32 5", "train_top1", FIGURE_12, 1, {40}, {71.36}},
    {"apam/accuracy", "imagenet32 10", "train_top1", FIGURE_12, 1, {40}, {69.36}},
    {"apam/accuracy", "imagenet32 1", "train_top5", FIGURE_12, 1, {40}, {91.54}},
    {"apam/accuracy", "imagenet32 2", "train_top5", FIGURE_12, 1, {40}, {91.09}},
    {"apam/accuracy", "imagenet32 5", "train_top5", FIGURE_12, 1, {40}, {90.79}},
    {"apam/accuracy", "imagenet32 10", "train_top5", FIGURE_12, 1, {40}, {89.47}},

    {"apam/mnist-lenet5", "async", "test_top1", LENET5, 5, {1, 2, 5, 10, 20}, {98.95, 99.05, 99.01, 99.02, 99.08}},
    {"apam/mnist-lenet5", "async", "train_top1", LENET5, 5, {1, 2, 5, 10, 20}, {100, 100, 100, 100, 100}},
    {"apam/mnist-lenet5", "async", "seconds", LENET5, 5, {1, 2, 5, 10, 20}, {1661.89, 821.95, 369.88, 233.73, 145.51}},

    {"apam/logit",
     "async",
     "train_loss",
     LOGIT,
     6,
     {1, 2, 4, 8, 16, 32},
     {0.00271, 0.00267, 0.00239, 0.00268, 0.00285, 0.00271}},
    {"apam/logit", "async", "test_top1", LOGIT, 6, {1, 2, 4, 8, 16, 32}, {99.9, 99.9, 99.92, 99.9, 99.91, 99.9}},
    {"apam/logit", "async", "seconds", LOGIT, 6, {1, 2, 4, 8, 16, 32}, {320.99, 168.15, 88.31, 48.27, 27.6, 19.71}},
};
enum { ROWS = sizeof rows / sizeof rows[0] };

int nw_published_count(void) { return ROWS; }
const nw_published *nw_published_at(int index) { return &rows[index]; }

const nw_published *nw_published_find(const char *experiment, const char *variant, const char *quantity)
{
    for (int i = 0; i < ROWS; i++)
        if (strcmp(rows[i].experiment, experiment) == 0 && strcmp(rows[i].variant, variant) == 0 &&
            strcmp(rows[i].quantity, quantity) == 0)
            return &rows[i];
    return NULL;
}
